#!/usr/bin/env python3
"""check_report.py PAGE MAX_BYTES: checks a report as a file: its HTML is well-formed, it refers to
nothing outside, nothing in its data is markup, and it is no larger than it may be. Prints its data.
"""
import html.parser
import json
import os
import re
import sys

VOID = {"meta", "link", "img", "br", "hr", "input"}


def fail(text):
    sys.exit(f"check_report.py: {text}")


class Page(html.parser.HTMLParser):
    """Elements are closed in order; collects scripts and attributes that name other files."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.scripts, self.ids, self.elements = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append(tag)
        for name in ("src", "srcset", "data", "action"):
            if name in attributes:
                fail(f"<{tag}> has {name}={attributes[name]!r}")
        if "href" in attributes and not attributes["href"].startswith("#"):
            fail(f"<{tag}> refers to {attributes['href']!r}")
        for name in attributes:
            if name.startswith("on"):
                fail(f"<{tag}> has a handler {name}")
        self.ids.append(attributes.get("id"))
        if tag == "script":
            self.scripts.append((attributes, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            fail(f"</{tag}> closes no open element")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data


def main(path, most):
    if os.path.getsize(path) > int(most):
        fail(f"{path} has {os.path.getsize(path)} bytes, {most} are the most")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not text.startswith("<!doctype html>\n"):
        fail("it does not begin with a doctype")
    page = Page()
    page.feed(text)
    page.close()
    if page.open:
        fail(f"open at the end: {page.open}")
    ids = [i for i in page.ids if i]
    if len(ids) != len(set(ids)) or page.elements.count("script") != 2:
        fail("ids are not unique, or there is a script that is not ours")
    # Names of XML are no addresses of files.
    addresses = [a for a in re.findall(r"""\w+://[^\s"')\\]+""", text)
                 if a != "http://www.w3.org/2000/svg"]
    if addresses or "@import" in text or "url(" in text:
        fail(f"it refers to {addresses}")
    attributes, data = page.scripts[0]
    if attributes != {"type": "application/json", "id": "data"} or "<" in data:
        fail("the data are not a JSON script without markup")
    json.dump(json.loads(data), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
