"""Comments, log lines and error texts of include and src are plain sentences: none of the words below, and no
sentence of a documentation comment is longer than 30 words. In tests, benchmarks, examples and all pages the
words stand nowhere, not even as whole names. Prints each place; --count prints sums by folder."""

import collections
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]

# The value says what stands in place of the word.
words = {
    r"nobody|no one": "no ..., nothing",
    r"somebody|anybody|everybody": "the thing's name",
    r"whoever": "the thing's name, with `that`",
    r"whose": "the ... of which, its",
    r"ere": "before",
    r"in vain": "without effect",
    r"for ever": "without end",
    r"any more|anymore": "no longer",
    r"to be had": "available",
    r"so (?:many|much)": "the number",
}
# Two words may be parted by the end of a line of a comment, or of a string.
between = r"[\s/#*\"]+"
banned = re.compile(r"\b(" + "|".join(words).replace(" ", between) + r")\b", re.I)
longest_sentence = 30

written_by_hand = {".build", ".c", ".cpp", ".h", ".hpp", ".json", ".map", ".md", ".py", ".sh", ".supp", ".txt"}
# The words are listed here.
left_out = {pathlib.Path(__file__).resolve()}


def texts(path):
    """(line, kind, text) of comments and string literals; a block of documentation is one text."""
    block, began = [], 0
    for number, line in enumerate(path.read_text().splitlines() + [""], 1):
        stripped = line.strip()
        if stripped.startswith("///") and not stripped.startswith("///<"):
            block.append(stripped[3:].strip())
            began = began or number
            continue
        if block:
            yield began, "documentation", " ".join(block)
            block, began = [], 0
        comment = re.search(r"//+<?(.*)$", line)
        if comment:
            yield number, "comment", comment.group(1)
        code = line[: comment.start()] if comment else line
        for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', code):
            if not code.lstrip().startswith("#include"):
                yield number, "text", literal


def without_code(text):
    """Names of code count as one word, which may be any."""
    return re.sub(r"`[^`]*`", "name", text)


def sentences(text):
    return [s for s in re.split(r"(?<=[.:;?!])\s+", text) if s]


def findings():
    for folder in ("include", "src"):
        for path in sorted((root / folder).rglob("*.[ch]pp")):
            for line, kind, text in texts(path):
                place = f"{path.relative_to(root)}:{line}"
                if kind != "text":
                    text = without_code(text)
                for word in banned.findall(text):
                    yield path, f"{place}: {kind} says '{word}'"
                if kind != "documentation":
                    continue
                for sentence in sentences(text):
                    length = len(sentence.split())
                    if length > longest_sentence:
                        yield path, f"{place}: a sentence of {length} words: {sentence[:60]} ..."
    pages = [*root.glob("*.md"), *root.glob(".github/*.md"), *root.glob("src/**/*.md")]
    for folder in ("tests", "benchmarks", "examples"):
        pages += (p for p in (root / folder).rglob("*") if p.suffix in written_by_hand)
    for path in sorted(pages):
        if path not in left_out:
            whole = path.read_text()
            for found in banned.finditer(whole):
                line = whole.count("\n", 0, found.start()) + 1
                yield path, f"{path.relative_to(root)}:{line}: it says '{' '.join(found[0].split())}'"


def main():
    sums = collections.Counter()
    for path, said in findings():
        sums[str(path.relative_to(root).parent)] += 1
        if "--count" not in sys.argv:
            print(said)
    if "--count" in sys.argv:
        for folder, number in sorted(sums.items()):
            print(number, folder)
    print(f"{sum(sums.values())} places")
    return 1 if sums else 0


sys.exit(main())
