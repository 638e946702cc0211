#!/usr/bin/env python3
"""drive_report.py PAGE...: opens reports in Chromium, without a window, as a person would: at two
widths, light and dark; drives the interactions; and wants no message on the console.

Ends with 77 if Chromium or Selenium is not installed.
"""
import shutil
import sys

try:
    from selenium import webdriver
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    print("skipped: python3-selenium is not installed")
    sys.exit(77)

WIDTHS = (1280, 1920)


def start():
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        print("skipped: chromium or chromium-driver is not installed")
        sys.exit(77)
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(driver) if hasattr(webdriver, "ChromeService") else None
    if service is None:
        from selenium.webdriver.chrome.service import Service
        service = Service(driver)
    return webdriver.Chrome(options=options, service=service)


class Driver:
    def __init__(self, browser, path):
        self.browser, self.path, self.problems = browser, path, []
        browser.get("file://" + path)
        WebDriverWait(browser, 60).until(
            lambda b: b.execute_script("return document.documentElement.dataset.complete"))

    def want(self, what, holds):
        if not holds:
            self.problems.append(what)

    def run(self, script):
        return self.browser.execute_script(script)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def press(self, element):
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def check_layout(self):
        for width in WIDTHS:
            self.browser.set_window_size(width, 900)
            for theme in ("light", "dark"):
                self.run(f"setTheme('{theme}')")
                self.want(f"{width} px, {theme}: the page is not wider than the window",
                          self.run("return document.documentElement.scrollWidth <= innerWidth"))
        # Both ends of the contrast of text: WCAG's ratio of 4.5 for the text and its quiet form.
        for theme in ("light", "dark"):
            self.run(f"setTheme('{theme}')")
            for name in ("text", "quiet", "accent", "bad", "good"):
                for ground in ("page", "card"):
                    ratio = self.run(CONTRAST + f"return contrast('{name}', '{ground}')")
                    self.want(f"{theme}: {name} on {ground} has a contrast of {ratio:.2f}",
                              ratio >= 4.5)

    def check_names(self):
        for element in self.all("button, select, input, svg[role], .cube, table"):
            name = element.accessible_name
            self.want(f"a {element.tag_name} has an accessible name", bool(name and name.strip()))
        self.want("sections have headings", len(self.all("main section")) > 0 and
                  len(self.all("main section > h2")) == len(self.all("main section")))

    def check_tables(self):
        """A click on a heading sorts; another one turns the order around."""
        for table in self.all("main table")[:3]:
            self.press(table.find_element(By.CSS_SELECTOR, "th button"))
            head = table.find_element(By.CSS_SELECTOR, "th")
            first = head.get_attribute("aria-sort")
            self.press(table.find_element(By.CSS_SELECTOR, "th button"))
            self.want("a table turns around",
                      {first, head.get_attribute("aria-sort")} == {"ascending", "descending"})
            cells = [cell.text for cell in table.find_elements(By.CSS_SELECTOR,
                                                               "tbody tr td:first-child")]
            self.want("a table is sorted by its names", all(cells))

    def check_machine(self):
        if not self.all("#machine-time"):
            return
        slider, output = self.one("#machine-time"), self.one("#machine output")
        bins = int(slider.get_attribute("max")) + 1
        self.want(f"{bins} bins, 50 are the least", bins >= 50)
        before = output.text
        slider.send_keys(Keys.ARROW_RIGHT)
        self.want("the slider shows a bin", output.text != before and " to " in output.text)
        self.one(".cube").send_keys(Keys.ENTER)
        self.want("a cube lists its links", "Links of sip0.cube0" in self.one("#machine").text)
        rect = self.one(".cube rect:nth-of-type(2)")
        ActionChains(self.browser).move_to_element(rect).perform()
        self.want("a PE has details", "sip0.cube0.pe0" in self.one("#tip").text)

    def check_timeline(self):
        if not self.all("#timeline .rows"):
            return
        rows = self.one("#timeline .rows")
        ticks = lambda: [t.get_attribute("textContent") for t in self.all("#timeline .axis")]
        whole = ticks()
        rows.send_keys("+")
        self.want("+ zooms in", ticks() != whole)
        rows.send_keys(Keys.ARROW_RIGHT)
        rows.send_keys("0")
        self.want("0 shows all", ticks() == whole)
        if not self.all("#timeline button.lane-name"):
            return  # no PE ran a kernel
        is_open = lambda: self.one("#timeline button.lane-name").get_attribute("aria-expanded")
        before = is_open()
        self.press(self.one("#timeline button.lane-name"))
        self.want("a PE opens and closes", is_open() != before)
        search = self.one("#timeline input[type=search]")
        search.send_keys("kernel that does not exist")
        self.want("nothing is found", "0 slices" in self.one("#timeline").text)
        search.clear()
        search.send_keys("sip0.cube0.pe0")
        self.want("a PE is found", len(self.all("#timeline button.lane-name")) > 0)
        search.send_keys(Keys.ENTER)

    def check_drawing(self):
        """The plot of a sweep has the theme of the page, and its own colours of text."""
        if not self.all("#drawing"):
            return
        colour = lambda theme, what: self.run(
            f"setTheme('{theme}');"
            "const plot = document.querySelector('#drawing div').shadowRoot.querySelector('svg');"
            f"return getComputedStyle(plot.querySelector('{what}')).fill")
        for what in (".page", ".ink"):
            self.want(f"{what} of the plot follows the theme",
                      colour("light", what) != colour("dark", what))
        self.want("the plot has a name", self.run(
            "return document.querySelector('#drawing div').shadowRoot.querySelector('svg')"
            ".getAttribute('aria-label')"))
        same = self.run("const plot = document.querySelector('#drawing div').shadowRoot;"
                        "return [...plot.querySelectorAll('text[fill]')].every((t) => {"
                        "const dot = document.createElement('div');"
                        "dot.style.color = t.getAttribute('fill'); document.body.append(dot);"
                        "const wanted = getComputedStyle(dot).color; dot.remove();"
                        "return getComputedStyle(t).fill === wanted; })")
        self.want("texts on cells keep their colour", same)

    def check(self):
        self.check_layout()
        self.check_drawing()
        self.check_names()
        self.check_tables()
        self.check_machine()
        self.check_timeline()
        for group in self.all("#path .controls button"):
            self.press(group)
            self.want("a division of the path is chosen",
                      group.get_attribute("aria-pressed") == "true")
        for entry in self.browser.get_log("browser"):
            self.problems.append(f"console: {entry['message']}")
        self.want("nothing of the data became markup",
                  not self.all("img, iframe, object, script[src], main script"))
        for problem in dict.fromkeys(self.problems):
            print(f"{self.path}: not so: {problem}")
        return not self.problems


CONTRAST = """
function luminance(name) {
    const hex = cssColour(name);
    const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
        .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}
function contrast(a, b) {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
}
"""


def main(paths):
    browser = start()
    try:
        good = [Driver(browser, path).check() for path in paths]
    finally:
        browser.quit()
    print(f"{len(good)} pages, {good.count(False)} with problems")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
