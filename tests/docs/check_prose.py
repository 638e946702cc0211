"""check_prose.py: checks what documents say where a program can.

Links and paths lead somewhere, prose wraps at 100 columns, and docs/glossary.md has its form: terms
in order, none twice, all in use, and no document uses a word that the glossary rules out, or a
riddle in the place of a name.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COLUMNS = 100
DOCUMENTS = ["README.md", "CONTRIBUTING.md"] + sorted(
    os.path.relpath(path, ROOT) for path in glob.glob(ROOT + "/docs/*.md"))
# Named by the sources, so their words change with those.
GLOSSARY_FOLLOWS = ["docs/glossary.md"]
# Riddles by pronoun: name the component instead.
RIDDLES = ["nobody", "somebody", "everybody", "whoever", "so many", "of those that", "to whom"]
GROUPS = ["Machine", "Network and timing", "Memory and tensors", "Kernels and PEs", "Queues",
          "Collectives", "Host runtime", "Results"]


def read(name):
    with open(os.path.join(ROOT, name)) as file:
        return file.read()


def prose_lines(text):
    """(number, line) outside of code blocks and directives."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside and not line.startswith("<!-- "):
            yield number, line


# ---- Links, paths, width --------------------------------------------------------------------


def check_links(name, text):
    for number, line in prose_lines(text):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", line):
            if not re.match(r"https?:", target):
                path = os.path.normpath(os.path.join(ROOT, os.path.dirname(name), target))
                if not os.path.exists(path):
                    yield "%s:%d: the link to %s leads nowhere" % (name, number, target)


def exists(path):
    return bool(glob.glob(os.path.join(ROOT, path)))


def check_paths(name, text):
    """Names of files and folders in code spans; `function()` in `file` is looked up there."""
    for number, line in prose_lines(text):
        for span in re.findall(r"`([^`]+)`", line):
            if re.fullmatch(r"(src|tests|docs|include|machines|tools|examples|perf|reference|"
                            r"templates|collectives)/[\w./*-]+",
                            span) and not exists(span.rstrip("/")) and not exists("docs/" + span):
                yield "%s:%d: there is no %s" % (name, number, span)
        for function, path in re.findall(r"`(\w+)\(\)`[^`]* in `([\w./]+\.[ch])`", line):
            if not exists(path) or not re.search(r"\b%s\(" % function, read(path)):
                yield "%s:%d: %s() is not in %s" % (name, number, function, path)


def check_files_of_tour(name, text):
    """Every `file.c` and `file.h` without a folder that the tour names is a source file."""
    folders = ("/src/*/*", "/src/*/*/*", "/include/*/*", "/tests/*/*")
    sources = {os.path.basename(path) for folder in folders for path in glob.glob(ROOT + folder)}
    for number, line in prose_lines(text):
        for span in re.findall(r"`(\w+\.[ch])`", line):
            if span not in sources:
                yield "%s:%d: there is no source file %s" % (name, number, span)


def check_folders(name, text):
    for folder in sorted(os.listdir(os.path.join(ROOT, "src"))):
        if os.path.isdir(os.path.join(ROOT, "src", folder)) and "src/" + folder not in text:
            yield "%s does not mention src/%s" % (name, folder)


def check_width(name, text):
    for number, line in prose_lines(text):
        if len(line) > COLUMNS and not line.startswith("|"):
            yield "%s:%d: %d columns, %d are the most" % (name, number, len(line), COLUMNS)


# ---- The glossary ---------------------------------------------------------------------------


class Term:
    def __init__(self, group, cell, meaning, ruled_out):
        self.group = group
        self.name = re.sub(r"\s*\(.*\)", "", cell).strip("`")
        self.meaning = meaning
        self.ruled_out = [word.strip() for word in ruled_out.split(",") if word.strip()]


def terms_of(text):
    group, terms = None, []
    for line in text.splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif line.startswith("| ") and not line.startswith("| term "):
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            terms.append(Term(group, cells[0], cells[1] if len(cells) > 1 else "",
                              cells[2] if len(cells) > 2 else ""))
    return terms


def check_form(terms):
    if [group for i, group in enumerate(t.group for t in terms)
            if i == 0 or terms[i - 1].group != group] != GROUPS:
        yield "the groups are not: %s" % ", ".join(GROUPS)
    seen = set()
    previous = None
    for term in terms:
        if term.name.lower() in seen:
            yield "'%s' stands there twice" % term.name
        seen.add(term.name.lower())
        if previous and previous.group == term.group and previous.name.lower() > term.name.lower():
            yield "'%s' comes before '%s'" % (previous.name, term.name)
        previous = term
        if not re.fullmatch(r"[A-Z0-9].*\.", term.meaning) or ". " in term.meaning:
            yield "'%s': the meaning is not one sentence" % term.name
        for word in term.ruled_out:
            if word.lower() in seen:
                yield "'%s' is a term, and ruled out for '%s'" % (word, term.name)


def check_in_use(terms):
    texts = [read(name) for name in DOCUMENTS if name != "docs/glossary.md"]
    texts += [read(os.path.relpath(path, ROOT)) for path in glob.glob(ROOT + "/include/kernbench/*.h")]
    corpus = re.sub(r"\s+(\* )?", " ", "\n".join(texts)).lower()
    for term in terms:
        if not re.search(r"\b%s" % re.escape(term.name.lower()), corpus):
            yield "'%s' is used in no document and no public header" % term.name


def check_ruled_out(terms, name, text):
    words = {word.lower(): term.name for term in terms for word in term.ruled_out
             if not word.startswith("`")}
    several_words = [term.name.lower() for term in terms if " " in term.name]
    for number, line in prose_lines(text):
        prose = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line).lower()
        for term in several_words:
            prose = prose.replace(term, " ")
        for word, term in words.items():
            if re.search(r"\b%ss?\b" % re.escape(word), prose):
                yield "%s:%d: '%s': the glossary has '%s'" % (name, number, word, term)


def check_riddles(name, text):
    for number, line in prose_lines(text):
        for word in RIDDLES:
            if re.search(r"\b%s\b" % word, line.lower()):
                yield "%s:%d: '%s': name the component" % (name, number, word)


def check_cited(text):
    """Every invariant and law is cited by an assert or a test."""
    sources = [path for folder in ("src", "tests") for ending in ("c", "h", "inc")
               for path in glob.glob("%s/%s/**/*.%s" % (ROOT, folder, ending), recursive=True)]
    cited = set()
    for path in sources:
        with open(path) as file:
            source = file.read()
        cited.update(re.findall(r"\b[A-Z]\d{1,2}\b", source))
        for letter, first, last in re.findall(r"\b([A-Z])(\d{1,2}) to [A-Z](\d{1,2})\b", source):
            cited.update("%s%d" % (letter, n) for n in range(int(first), int(last) + 1))
    for number in re.findall(r"^(?:- |\| )\*\*([A-Z]\d{1,2})\*\*", text, re.M):
        if number not in cited:
            yield "%s is cited by no source file and no test" % number


# ---- Cases ----------------------------------------------------------------------------------


def cases():
    for name in DOCUMENTS:
        text = read(name)
        yield "%s: links" % name, check_links(name, text)
        yield "%s: paths" % name, check_paths(name, text)
        yield "%s: %d columns" % (name, COLUMNS), check_width(name, text)
    for path in sorted(glob.glob(ROOT + "/docs/decisions/*.md")):
        name = os.path.relpath(path, ROOT)
        yield "%s: %d columns" % (name, COLUMNS), check_width(name, read(name))
    tour = "docs/architecture.md"
    yield "%s: files" % tour, check_files_of_tour(tour, read(tour))
    yield "%s: folders" % tour, check_folders(tour, read(tour))
    yield "invariants: cited", check_cited(read("docs/invariants.md"))
    yield "laws: cited", check_cited(read("docs/timing.md"))
    terms = terms_of(read("docs/glossary.md"))
    yield "glossary: form", check_form(terms)
    yield "glossary: terms are in use", check_in_use(terms)
    for name in sorted(set(DOCUMENTS) - set(GLOSSARY_FOLLOWS)):
        yield "glossary: words of %s" % name, check_ruled_out(terms, name, read(name))
        yield "%s: plain sentences" % name, check_riddles(name, read(name))


def main():
    passed = failed = 0
    for title, problems in cases():
        print("[ RUN      ] %s" % title)
        found = list(problems)
        print("\n".join(found + ["[  FAILED  ] %s" % title if found else "[       OK ] %s" % title]))
        failed += bool(found)
        passed += not found
    print("[  PASSED  ] %d test(s)." % passed)
    if failed:
        print("[  FAILED  ] %d test(s)." % failed)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
