#!/usr/bin/env python3
"""plots.py PROGRAM: the plots that PROGRAM (plot-samples) writes into a folder are well-formed SVG documents that load nothing, whose
texts are inside the drawing and do not cover each other; and they are the same each time.

The width of a text is estimated as the drawing does it, with the widths of the widest common font.
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"
NARROW = set("ijlfrtI.,:;'|!()[]/\\- ")


def width(text, size):
    def letter(c):
        if ord(c) >= 0x80:
            return 1
        if c in NARROW:
            return 0.30
        return 0.5 if c.islower() or c.isdigit() or c == "_" else 0.7
    return size * sum(letter(c) for c in text)


def box(element):
    size, x, y = (float(element.get(key)) for key in ("font-size", "x", "y"))
    w = width(element.text or "", size)
    left = {"start": x, "middle": x - w / 2, "end": x - w}[element.get("text-anchor")]
    return left, y - 0.75 * size, left + w, y + 0.1 * size


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def check(path):
    problems = []
    root = tree.parse(path).getroot()
    if root.tag != SVG + "svg":
        return [f"{path}: not an SVG document"]
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for word in ("href", "url(", "<script", "<image", "nan", "inf\""):
        if word in text:
            problems.append(f"{path}: has {word}")
    if "prefers-color-scheme:dark" not in text:
        problems.append(f"{path}: has no dark colours")
    page = 0, 0, float(root.get("width")), float(root.get("height"))
    texts = [(element.text, box(element)) for element in root.iter(SVG + "text") if element.text]
    if len(texts) < 4:
        problems.append(f"{path}: only {len(texts)} texts")
    for i, (words, at) in enumerate(texts):
        if at[0] < page[0] or at[1] < page[1] or at[2] > page[2] or at[3] > page[3]:
            problems.append(f"{path}: '{words}' is not inside")
        for other, place in texts[:i]:
            if overlap(at, place):
                problems.append(f"{path}: '{words}' covers '{other}'")
    return problems


def digests(program):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder], check=True)
        names = sorted(os.listdir(folder))
        problems = [p for name in names for p in check(os.path.join(folder, name))]
        result = {}
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                result[name] = hashlib.sha256(file.read()).hexdigest()
    return result, problems


def main():
    first, problems = digests(sys.argv[1])
    second, _ = digests(sys.argv[1])
    if first != second or len(first) < 10:
        problems.append(f"{len(first)} plots, not the same twice")
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)
    print(f"[  PASSED  ] {len(first)} test(s).")


main()
