"""What an operation can end with stands at it, behind the word `Errors:`.

- Each public function that returns something to await, or throws in its header or its source, has it in its
  comment. For a member that of its class counts, unless it defines sets.
- Behind it, each name in backticks is a cause, a kind of a store's error, an exception, or a name of the public
  headers. `The causes of ...` are a set that one class defines, `those of` a function or class with errors.
- Each cause is named behind one of them, and no comment says `Throws` in place of it.

It plants such mistakes in copies of the headers, each of which it must find."""

import importlib.util
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
include = root / "include/manyworlds"
loaded = importlib.util.spec_from_file_location("reference", root / "src/package/reference.py")
reference = importlib.util.module_from_spec(loaded)
loaded.loader.exec_module(reference)

awaited = re.compile(
    r"\b(?:task<|task_keeping<|world_operation<|device_operation<|collective_operation\b|awaitable_by_all<|scope_run<"
    r"|when_all_range<|when_any_range<|\w+_awaitable\b|\w+_awaiter\b|channel_p\w+<|dispatched_call<|next_reply\b)"
)
# What gives an awaitable, and says `auto`.
deduced = {"asio_await", "outcome", "resume_on", "shield", "stop_on", "when_all", "when_any", "within"}
# Stands for the operation that an adapter was given.
adapted = {"op"}
exceptions = {"world_error", "store_error", "device_error", "unknown_world", "timed_out", "stopped"}
errors = re.compile(r"\bErrors:")
defined_set = re.compile(r"^- The causes of ([^:`]+):", re.M)
used_set = re.compile(r"\bcauses of (a break|[a-z]+(?: operation| handle)?)\b")


def enumerators(text, name):
    body = re.search(rf"enum class {name}\b[^{{]*{{(.*?)\n}};", text, re.S)[1]
    return set(re.findall(r"^  (\w+)\b", re.sub(r"//.*", "", body), re.M))


def without_private(text):
    """The text without what only the class itself may name."""
    lines, hidden = [], None
    for line in text.splitlines():
        label = re.match(r"( +)(public|private|protected):", line)
        if label and (hidden is None or len(label[1]) <= hidden):
            hidden = len(label[1]) if label[2] != "public" else None
        elif hidden is not None and re.match(rf" {{{hidden - 1}}}}};", line):
            hidden = None
        if hidden is None or label:
            lines.append(line)
    return "\n".join(lines)


def text_of(comment):
    return "\n".join(line.strip()[3:].strip() for line in comment)


def told(comment):
    """The lines behind `Errors:`, up to an empty one."""
    text = text_of(comment)
    parts = errors.split(text)[1:]
    return "\n".join(re.split(r"\n\n", part)[0] for part in parts)


class Header:
    def __init__(self, name, text):
        self.name = name
        plain = without_private(reference.plainer(text))
        self.found = reference.declarations(plain.splitlines())
        self.throws = set()
        # A comment holds for the overloads behind it.
        last = None
        for one in self.found:
            beside = last and last.block == one.block and last.name() == one.name()
            if not one.comment and beside:
                one.comment = last.comment
            last = one
        lines = plain.splitlines()
        for one, after in zip(self.found, [*self.found[1:], None]):
            body = lines[one.line : after.line if after else len(lines)]
            if "(" in one.bare() and any(re.search(r"\bthrow\b", reference.without_text(line)) for line in body):
                self.throws.add(one)


def returns_awaitable(one):
    bare = re.sub(r"\[\[\w+\]\] *", "", one.bare())
    name = one.name()
    before = bare[: bare.find(name + "(")] if name + "(" in bare else ""
    if bare.startswith(("concept", "requires")):
        return False
    if "operator co_await" in bare:
        return True
    if before.rstrip().endswith("&&") or bare.startswith(("using", "friend", "explicit", "virtual ~")):
        return False
    return bool(before and (awaited.search(before) or name in deduced and "auto" in before))


defined = re.compile(r"^(?!namespace|using|static_assert|[#/}\s])(?:.*?[\s*&])?(?:(\w+)::)?(~?\w+)\(")
# They throw for others, in other sources.
throwers = {"refuse", "check_view", "check_slice", "check_stream", "check_not_captured", "cuda_for", "cuda_on"}


def throwing(path):
    """(class or None, function) of what throws in a source, also by another function of that source."""
    bodies, at = {}, None
    for line in path.read_text().splitlines():
        code = reference.without_text(line)
        found = defined.match(code) if at is None or line[:1] not in (" ", "}", "") else None
        if found:
            at = (found[1], found[2])
        if at:
            bodies.setdefault(at, []).append(code)
        if line.startswith("}") or code.endswith(";") and not line.startswith(" "):
            at = None
    bodies = {at: "\n".join(lines) for at, lines in bodies.items() if any("{" in line for line in lines)}
    found = {at for at, body in bodies.items() if re.search(r"\bthrow\b", body) and "catch (" not in body}
    while True:
        names = throwers | {name for _, name in found}
        more = {at for at, body in bodies.items() if at not in found and any(
            re.search(rf"(?<![.>])\b{name}\(", body.split("{", 1)[-1]) for name in names)}
        if not more:
            return found
        found |= more


class Public:
    """What the public headers have, by name."""

    def __init__(self, headers):
        self.all = [(header, one) for header in headers for one in header.found]
        self.words = {word for _, one in self.all for word in re.findall(r"\w+", one.head)}
        self.classes, self.answers, self.sets, self.functions = {}, set(), {}, {}
        for header, one in self.all:
            text = text_of(one.comment)
            scope = reference.scope_of(one) if re.match(r"(class|struct)\b", one.bare()) else None
            if scope and one.comment:
                self.classes[scope[1]] = text
            if errors.search(text):
                self.answers.add(scope[1] if scope else one.name())
                for name in defined_set.findall(text):
                    self.sets.setdefault(name, []).append(header.name)
            if "(" in one.bare() and "noexcept" not in one.head:
                self.functions.setdefault((class_of(one), one.name()), []).append((header, one))

    def is_told(self, one):
        """Whether the comment, or that of its class, says what it ends with."""
        above = self.classes.get(class_of(one), "")
        return errors.search(text_of(one.comment)) or errors.search(above) and not defined_set.search(above)


def class_of(one):
    return one.scope[1] if one.scope[0] in ("class", "struct") else None


def wrong_words(one, public, known):
    """What the comment of a declaration says wrongly."""
    behind = re.sub(r"\s+", " ", told(one.comment))
    if re.search(r"(?:^|[.:;] |\n)Throws\b", text_of(one.comment)):
        yield "`Errors:` is the word, not `Throws`"
    for word in re.findall(r"`([a-z_]\w*)(?:::\w+|\(\))?`", behind):
        if word not in known:
            yield f"there is no cause `{word}`"
    for phrase in used_set.findall(behind):
        if phrase not in public.sets:
            yield f"nothing defines the causes of {phrase}"
    for word in re.findall(r"(?:those|as) of `(\w+)(?:::\w+)?`", behind):
        if word not in public.answers | adapted:
            yield f"`{word}` lists no errors"


def check(headers, causes, kinds, sources):
    public = Public(headers)
    known = causes | kinds | exceptions | adapted | public.words
    wrong, named, counted = [], set(), 0
    for name, places in public.sets.items():
        if len(places) > 1:
            wrong.append(f"the causes of {name} are defined in {', '.join(places)}")
    for header, one in public.all:
        place = f"{header.name}: {one.name()}"
        named |= set(re.findall(r"`(\w+)`", told(one.comment)))
        wrong += [f"{place}: {each}" for each in wrong_words(one, public, known)]
        if returns_awaitable(one) or one in header.throws:
            counted += 1
            if not public.is_told(one):
                wrong.append(f"{place}: no `Errors:` says what it ends with")
    for at in sorted(sources & public.functions.keys(), key=str):
        for header, one in public.functions[at]:
            if not public.is_told(one):
                wrong.append(f"{header.name}: {one.name()}: no `Errors:` says what its source throws")
    wrong += [f"no operation lists the cause `{cause}`" for cause in sorted(causes - {"none"} - named)]
    return wrong, counted


def read(changed=None):
    """The public headers; `changed` is (header, old, new)."""
    headers = []
    for path in sorted(include.rglob("*.hpp")):
        name = str(path.relative_to(include))
        if "detail" in path.parts:
            continue
        text = path.read_text()
        if changed and changed[0] == name:
            if text.count(changed[1]) < 1:
                return None
            text = text.replace(changed[1], changed[2])
        headers.append(Header(name, text))
    for header in headers:
        header.found = [one for one in header.found if "detail" not in one.scope[1]]
    return headers


# What is planted, and what must be said of it.
planted = [
    ("world/world.hpp", "`rank_taken`, `size_disagrees`", "`rank_taken`, `sizes_disagree`", "no cause `sizes_disagree`"),
    ("world/world.hpp", "`backend_disagrees`, ", "", "lists the cause `backend_disagrees`"),
    ("world/world.hpp", "gives the cause. Errors: none.", "gives the cause.", "world.hpp: broken: no `Errors:`"),
    ("world/world.hpp", "- The causes of forming:", "- Those of forming:", "nothing defines the causes of forming"),
    ("coro/sleep.hpp", "Errors: those of `sleep_for`.", "Errors: those of `sleep`.", "`sleep` lists no errors"),
    ("world/collective_calls.hpp", "Errors: the causes", "The causes", "all_reduce: no `Errors:`"),
    ("world/result.hpp", "Errors: world_error with the failure, if", "It throws if", "value: no `Errors:`"),
    ("nccl/device_count.hpp", "Errors: device_error", "Throws device_error", "not `Throws`"),
    ("nccl/device_pool.hpp", "counts them. Errors: device_error.", "counts them.", "used: no `Errors:` says what its"),
]


def main():
    failure = (include / "failure.hpp").read_text()
    causes = enumerators(failure, "cause")
    kinds = enumerators((include / "store/store_error.hpp").read_text(), "store_error_kind")
    sources = set().union(*(throwing(path) for path in sorted((root / "src").rglob("*.cpp"))))
    wrong, counted = check(read(), causes, kinds, sources)
    for name, old, new, expected in planted:
        headers = read((name, old, new))
        if headers is None:
            wrong.append(f"planted: {name} does not say {old!r}")
            continue
        if not any(expected in each for each in check(headers, causes, kinds, sources)[0]):
            wrong.append(f"planted: without {old!r} of {name} nothing says {expected!r}")
    print("\n".join(wrong))
    print(f"{counted} operations, {len(causes) - 1} causes, {len(planted)} planted")
    return bool(wrong)


sys.exit(main())
