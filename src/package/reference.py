"""Makes the reference of the public headers by Doxygen: reference.py DOXYGEN FOLDER [SETTING...]
As Doxygen's filter it prints a header as it is to be read: reference.py --read HEADER

Doxygen 1.9 wants a comment above each member, and does not know all of C++20. So it reads the headers with
these changes:

- A comment holds for the overloads and the constants that follow it without an empty line.
- Members that mean the same everywhere get a sentence of `usual`, or one of `own_sentence`; moving and copying always.
- What is deleted is left out.
- What it misreads is written in another way, or left out: see `plainer`.
"""

import pathlib
import re
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
root = here.parents[1]

usual = {
    r"\bname_of\(": "Returns the enumerator's name.",
    r"\bwhat\(\) const noexcept": "Returns the text of the error.",
    r"\b(?:size|count)\(\) const": "Returns how many there are.",
    r"\bsize_bytes\(\) const": "Returns the number of bytes.",
    r"\bempty\(\) const": "Returns whether there are none.",
    r"\bdata\(\)": "Returns the address of the first element.",
    r"\b(?:begin|end)\(\)": "Iterates over the elements.",
    r"\boperator==": "Compares the values.",
    r"\boperator<=>": "Orders the values.",
    r"\boperator=\(.*&&": "Takes what the other has.",
    r"\boperator=\(": "Copies the other.",
    r"\boperator co_await\(": "Gives what is awaited.",
    r"\busing value_type =": "The type of the value.",
}
before_names = r"(?:\[\[nodiscard\]\] |static |constexpr |virtual |inline |explicit )*"
accessor = re.compile(before_names + r"(?:const |enum |class )*[\w:<>]+[&*]? (\w+)\(\) const\b")
field = re.compile(r"(?:enum |class |const |static |constexpr )*[\w:]+(?:<.*>)?[&*]? \w+(?: =.*|\{.*|)$")
constant = re.compile(before_names + r"(?:using|[\w:<>]+ \w+ =)")
template = re.compile(r"template <(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*")


def plainer(text):
    text = text.replace("::inline v0", "")
    # What warnings say: Doxygen takes the parentheses for a function's.
    text = re.sub(r'\[\[nodiscard\((?:"[^"]*"\s*)+\)\]\]', "[[nodiscard]]", text)
    text = text.replace("MANYWORLDS_MUST_AWAIT ", "[[nodiscard]] ")
    # Short names for what users know, so that Doxygen links it.
    text = text.replace("detail::collective_operation", "world_operation<void>")
    text = text.replace("detail::device_operation<", "world_operation<")
    # Machinery: what stands in detail, and definitions below the line that ends the interface.
    text = re.sub(r"^namespace detail \{\n.*?^\}  // namespace detail\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^// -{20,}\n.*?(?=^\}  // namespace manyworlds)", "", text, flags=re.M | re.S)
    # Overloads that only say why an argument is refused, when one compiles them.
    text = re.sub(
        r"^ *template <detail::(?:not_|no_|dying)[^{;]*\{\n(?:(?! *\}$)[^\n]*\n)*? *\}\n", "", text, flags=re.M
    )
    text = re.sub(r"^  // Refuses a braced list.*?^  \}\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^ *template [^\n]*\n *requires detail::lacks_[^\n]*\n[^\n]*\}\n", "", text, flags=re.M)
    # Constraints between a template's head and its function: Doxygen takes them for a part of the name.
    return re.sub(r"\n *requires ?\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\) ?", "\n", text)


def without_text(line):
    """The line without comments and what is in quotation marks."""
    return re.sub(r"//.*", "", re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', "0", line)).strip()


class Declaration:
    def __init__(self, line, code, scope, comment, block):
        self.line, self.head, self.scope, self.comment, self.block = line, code, scope, comment, block
        self.last = line

    def is_deleted(self):
        return self.bare().endswith("= delete")

    def is_move_or_copy(self):
        """Of the class in which it stands."""
        made = re.escape(self.scope[1])
        return bool(re.search(rf"\b(?:{made}|operator=)\((?:const )?{made}(?:<\w+>)?&&?", self.bare()))

    def bare(self):
        return template.sub("", self.head).split(" {")[0].rstrip("; ")

    def name(self):
        """What overloads share; a constant has its own."""
        before = self.bare().split("(")[0]
        return before.split()[-1].lstrip("&*") if "operator" not in before else before[before.index("operator"):]


def scope_of(declaration):
    """What the braces behind it hold: (kind, name), or None for a function or an initializer."""
    found = re.match(r"(?:(?:typedef|MANYWORLDS_EXPORT)\s+)*(class|struct|namespace|union|enum)\b(.*)", declaration.bare())
    if not found or "(" in found[2].split(":")[0]:
        return None
    names = re.findall(r"\b(?!MANYWORLDS_EXPORT|nodiscard|final|class)(\w+)", found[2].split(" : ")[0])
    return found[1], names[0] if names else ""


def declarations(lines):
    found, scopes, depth, block, comment, going_on = [], [("namespace", "")], 0, 0, [], None
    for number, line in enumerate(lines):
        stripped, code = line.strip(), without_text(line)
        if scopes[-1] and not going_on:
            if stripped.startswith("///"):
                comment.append(line)
                continue
            if not stripped or re.match(r"#|(public|private|protected):", stripped):
                block, comment = block + 1, []
                continue
            if not code:
                continue
            if code[0] != "}":
                going_on = Declaration(number, "", scopes[-1], comment, block)
                if "///<" in line:
                    going_on.comment = ["trailing"]
                found.append(going_on)
                comment = []
        if going_on:
            going_on.last = number
        for letter in code + " ":
            if going_on and scopes[-1]:
                going_on.head += letter
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if letter == "{":
                scopes.append(scope_of(going_on) if going_on and scopes[-1] and depth == 0 else None)
                if scopes[-1]:
                    going_on, block = None, block + 1
            elif letter == "}":
                ended = scopes.pop()
                block += bool(ended)
            if depth == 0 and scopes[-1] and (letter in ";}" or letter == "," and scopes[-1][0] == "enum"):
                going_on = None
    return found


def own_sentence(one):
    """The sentence for a member that needs no other, or None."""
    bare, (kind, name) = one.bare(), one.scope
    if kind in ("class", "struct") and name:
        made = re.match(before_names + rf"(~?){re.escape(name)}\(", bare)
        if made and one.is_move_or_copy():
            return "Takes what the other has." if "&&" in bare else "Copies the other."
        if made:
            return "Ends it." if made[1] else "Makes one."
    for pattern, sentence in usual.items():
        if re.search(pattern, bare):
            return sentence
    returns = accessor.match(bare)
    if returns and re.match(r"(?:is|has)_", returns[1]):
        return f"Returns whether it {returns[1].replace('_', ' ')}."
    if returns:
        return f"Returns the {returns[1].replace('_', ' ')}."
    if kind == "struct" and "(" not in bare and field.match(one.head.rstrip("; ")):
        return "The comment of the struct explains it."
    return None


def with_comments(text):
    lines, above, hidden, last = text.splitlines(), {}, set(), None
    for one in declarations(lines):
        if one.is_deleted():
            hidden.update(range(one.line, one.last + 1))
            continue
        indent = lines[one.line][: len(lines[one.line]) - len(lines[one.line].lstrip())]
        if one.comment:
            last = one
            continue
        beside = last and last.block == one.block and last.comment != ["trailing"]
        sentence = own_sentence(one)
        if beside and last.name() == one.name() and not one.is_move_or_copy():
            above[one.line] = last.comment
        elif sentence:
            above[one.line] = [f"{indent}/// {sentence}"]
        elif beside and constant.match(last.bare()) and constant.match(one.bare()):
            above[one.line] = last.comment
    shown = [[*above.get(number, []), line] for number, line in enumerate(lines) if number not in hidden]
    return "\n".join("\n".join(each) for each in shown) + "\n"


def main():
    if sys.argv[1] == "--read":
        text = pathlib.Path(sys.argv[2]).read_text()
        print(with_comments(plainer(text)) if sys.argv[2].endswith(".hpp") else text, end="")
        return 0
    doxygen, folder, *settings = sys.argv[1:]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    settings = [
        f"@INCLUDE = {here / 'Doxyfile'}",
        f"OUTPUT_DIRECTORY = {folder}",
        f'INPUT_FILTER = "{sys.executable} {pathlib.Path(__file__).resolve()} --read"',
        *settings,
    ]
    return subprocess.run([doxygen, "-"], input="\n".join(settings), text=True, cwd=root).returncode


if __name__ == "__main__":
    sys.exit(main())
