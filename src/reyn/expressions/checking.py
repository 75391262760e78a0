"""Check an expression against the types of the values that it can read, before anything is evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reyn.documents import nearest
from reyn.expressions.facts import (
    NO_FACTS,
    NUMBERS,
    Comparison,
    Facts,
    assume,
    comparison_of,
    fits,
    outcomes,
    scalar_key,
)
from reyn.expressions.tree import (
    Binary,
    Conditional,
    FieldOf,
    FunctionCall,
    Has,
    Index,
    ListOf,
    Literal,
    Macro,
    Name,
    Node,
    Path,
    Problem,
    Unary,
    label_of,
    path_of,
    source_text,
    start_of,
    write_path,
)
from reyn.expressions.types import (
    ANY,
    BOOL,
    DOUBLE,
    INT,
    SIZE,
    STRING_TYPE,
    TRUE,
    Kind,
    Type,
    constant,
    is_double,
    kind_names,
    list_of,
    union,
    words_for,
)
from reyn.jsonschema import SchemaInvalid, compile_schema

_TEXT_METHODS = ("startsWith", "endsWith", "contains", "matches")
_ARITHMETIC = {"+": (*NUMBERS, "string", "list"), "-": NUMBERS, "*": NUMBERS, "/": NUMBERS, "%": ("int",)}
_CONVERTIBLE = {
    "int": ("int", "double", "string"),
    "double": ("int", "double", "string"),
    "string": ("int", "double", "string", "bool"),
}
_RESULTS = {"int": INT, "double": DOUBLE, "string": STRING_TYPE}


class Scope(NamedTuple):
    """The names that an expression can use, with their types; `type` and `data` are those of one of the artifacts."""

    variables: Mapping[str, Type] = {}
    artifacts: tuple[tuple[str, Type], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*(("data", "type") if self.artifacts else ()), *self.variables)


class Checked(NamedTuple):
    """The result of a check.

    Attributes:
        type: The type of the result.
        problems: What is wrong, in the order of the text.
        doubles: The offsets of the values that are numbers even where JSON writes an integer.
        if_true: What holds if the condition is true; `None` if it never is.
        if_false: What holds if it is false; `None` if it never is.
    """

    type: Type
    problems: tuple[Problem, ...]
    doubles: frozenset[int]
    if_true: Facts | None
    if_false: Facts | None


def check_expression(node: Node, scope: Scope, facts: Facts = NO_FACTS) -> Checked:
    """Check an expression.

    Args:
        node: The expression.
        scope: The names that it can use.
        facts: What holds where it is evaluated.
    """
    checker = _TypeChecker(scope)
    found = checker.check(node, facts)
    true, false = (assume(node, facts, checker.types, truth=truth) for truth in (True, False))
    results = (
        {value for kind in found for value in kind.possible() or ()} if kind_names(found) == {"bool"} else {True, False}
    )
    return Checked(
        found,
        tuple(sorted(set(checker.problems))),
        frozenset(checker.doubles),
        true if True in results else None,
        false if False in results else None,
    )


class _TypeChecker:
    """Checks one expression. `types` has the type of every path, without the facts about it."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.problems: list[Problem] = []
        self.doubles: set[int] = set()
        self.types: dict[Path, Type] = {}
        self._items: dict[str, Type] = {}

    def _report(self, at: int, message: str, fix: str = "", kind: str = "invalid") -> Type:
        self.problems.append(Problem(at, message, fix, kind))
        return ANY

    def check(self, node: Node, facts: Facts) -> Type:
        match node:
            case Literal(value=value):
                return constant(value)
            case Name():
                return self._known(node, self._name(node, facts), facts)
            case FieldOf():
                return self._known(node, self._select(node, self.check(node.operand, facts), facts), facts)
            case Has():
                return self._has(node, facts)
            case Index():
                return self._known(node, self._index(node, facts), facts)
            case Unary():
                return self._unary(node, facts)
            case Binary(operator="&&" | "||"):
                return self._logic(node, facts)
            case Binary(operator="in"):
                return self._member(node, facts)
            case Binary(operator=operator):
                return self._arithmetic(node, facts) if operator in _ARITHMETIC else self._compare(node, facts)
            case Conditional(test=test, yes=yes, no=no):
                self._bool(test, facts)
                ways = ((yes, True), (no, False))
                after = [(one, assume(test, facts, self.types, truth=truth)) for one, truth in ways]
                return union(self.check(one, facts if known is None else known) for one, known in after)
            case ListOf(items=items):
                return list_of(union([self.check(one, facts) for one in items]))
            case FunctionCall():
                return self._call(node, facts)
            case Macro():
                return self._macro(node, facts)

    # -- paths ----------------------------------------------------------------------------------------

    def _known(self, node: Node, found: Type, facts: Facts) -> Type:
        """Remember the type of a path; return what it can still be."""
        path = path_of(node)
        if path is None:
            return found
        self.types[path] = found
        return facts.types.get(path, found)

    def _name(self, node: Name, facts: Facts) -> Type:
        name, scope = node.name, self.scope
        if name in self._items:
            return self._items[name]
        if name in scope.variables:
            return scope.variables[name]
        if name in ("data", "type") and scope.artifacts:
            possible = {value for kind in facts.types.get(("type",), ()) for value in kind.values or ()}
            artifacts = [one for one in scope.artifacts if not possible or one[0] in possible]
            return (
                union(data for _, data in artifacts) if name == "data" else union(constant(one) for one, _ in artifacts)
            )
        return self._report(node.at, f"unknown name `{name}`", _nearest(name, (*scope.names, *self._items)))

    def _field(self, base: Type, field: str) -> tuple[list[Type], bool, list[str]]:
        """Return the types of a field, whether it is always there, and the names of the fields that there are."""
        found: list[Type] = []
        known: list[str] = []
        is_required = True
        for kind in base:
            if kind.name == "any":
                found.append(ANY)
            elif kind.name == "map":
                known += kind.fields
                here = kind.fields.get(field, kind.extra)
                found += [here()] if here is not None else []
                is_required = is_required and field in kind.required
        return found, is_required, known

    def _select(self, node: FieldOf | Has, base: Type, facts: Facts) -> Type:
        """Return the type of a field. `has` may name one that is missing."""
        found, is_required, known = self._field(base, node.field)
        names, label = kind_names(base), label_of(node.operand)
        if base and not names & {"any", "map"}:
            return self._report(node.at, f"{label} is {words_for(base)} and has no field `{node.field}`")
        if not found:
            return (
                self._report(node.at, f"{label} has no field `{node.field}`", _nearest(node.field, known))
                if base
                else ()
            )
        others = tuple(kind for kind in base if kind.name not in ("any", "map"))
        if others:
            fix = (
                f"write `{source_text(node.operand)} != null && ...`"
                if kind_names(others) == {"null"}
                else "test its type before"
            )
            self._report(node.at, f"{label} can be {words_for(others)}, which has no fields", fix, "optional")
        result = union(found)
        if isinstance(node, FieldOf):
            path = path_of(node)
            if not is_required and "any" not in names and (path is None or path not in facts.present):
                name = f"x.{node.field}" if path is None else write_path(path)
                fix = f"test `has({name})` in `filter` or `exists`" if path is None else f"write `has({name}) && ...`"
                self._report(node.at, f"`{node.field if path is None else name}` may be missing", fix, "optional")
            if is_double(result):
                self.doubles.add(node.at)
        return result

    def _has(self, node: Has, facts: Facts) -> Type:
        before, base = len(self.problems), self.check(node.operand, facts)
        self._select(node, base, facts)
        path = path_of(node.operand)
        if len(self.problems) > before or path is None:
            return BOOL
        _, is_required, _ = self._field(base, node.field)
        is_known = is_required and "any" not in kind_names(base)
        return TRUE if is_known or (*path, node.field) in facts.present else BOOL

    def _index(self, node: Index, facts: Facts) -> Type:
        base, key = self.check(node.operand, facts), self.check(node.key, facts)
        found: list[Type] = []
        for kind in base:
            if kind.name == "any":
                found.append(ANY)
            elif kind.name == "list" and kind_names(key) & {"int", "any"}:
                found.append(kind.items() if kind.items else ANY)
            elif kind.name == "map" and kind_names(key) & {"string", "any"}:
                found += [one() for one in (*kind.fields.values(), *((kind.extra,) if kind.extra else ()))]
        if base and key and not found:
            return self._report(node.at, f"{words_for(base)} has no item at {words_for(key)}")
        result = union(found)
        if is_double(result):
            self.doubles.add(node.at)
        return result

    # -- operators ------------------------------------------------------------------------------------

    def _bool(self, node: Node, facts: Facts) -> Type:
        """Check a condition."""
        found = self.check(node, facts)
        names = kind_names(found)
        if found and not names & {"bool", "any"}:
            fix = "compare it, such as `== true`" if not names <= set(NUMBERS) else "compare it, such as `> 0`"
            self._report(start_of(node), f"{label_of(node)} is {words_for(found)}, not a condition", fix)
        elif names - {"bool", "any"}:
            message = f"{label_of(node)} can be {words_for(tuple(one for one in found if one.name != 'bool'))}"
            self._report(start_of(node), message, f"write `{source_text(node)} == true`", "optional")
        return tuple(kind for kind in found if kind.name == "bool") or BOOL

    def _logic(self, node: Binary, facts: Facts) -> Type:
        is_and = node.operator == "&&"
        left = self._bool(node.left, facts)
        after = assume(node.left, facts, self.types, truth=is_and)
        right = self._bool(node.right, facts if after is None else after)
        results = [_results(left) if after is not None else {not is_and}, _results(right)]
        decided = not is_and  # the result that one side alone decides
        if any(one == {decided} for one in results):
            return constant(decided)
        return constant(is_and) if all(one == {is_and} for one in results) else BOOL

    def _unary(self, node: Unary, facts: Facts) -> Type:
        if node.operator == "!":
            results = _results(self._bool(node.operand, facts))
            return BOOL if len(results) > 1 else constant(not next(iter(results)))
        found = self.check(node.operand, facts)
        numbers = [Kind(name) for name in NUMBERS if name in kind_names(found)]
        if found and not numbers and "any" not in kind_names(found):
            return self._report(node.at, f"`-` needs a number; {label_of(node.operand)} is {words_for(found)}")
        return ANY if "any" in kind_names(found) else tuple(numbers)

    def _arithmetic(self, node: Binary, facts: Facts) -> Type:
        left, right = self.check(node.left, facts), self.check(node.right, facts)
        names = kind_names(left), kind_names(right)
        allowed = _ARITHMETIC[node.operator]
        common = [name for name in allowed if name in names[0] and name in names[1]]
        if not left or not right:
            return ()
        if not common and "any" not in names[0] | names[1]:
            message = f"`{node.operator}` cannot combine {words_for(left)} with {words_for(right)}"
            mixed = names[0] | names[1] == set(NUMBERS) and node.operator != "%"
            fix = "write `2.0` instead of `2`, or `double(...)`" if mixed else ""
            return self._report(node.at, message, fix)
        if "any" in names[0] | names[1]:
            known = names[1] if "any" in names[0] else names[0]
            wrong = "any" not in known and not known & set(allowed)
            return self._report(node.at, f"`{node.operator}` cannot be used with {words_for(left)}") if wrong else ANY
        self._only(node, (left, right), common)
        if common == ["list"]:
            return union([left, right])
        return tuple(Kind(name) if name != "list" else Kind("list", items=lambda: ANY) for name in common)

    def _only(self, node: Binary, sides: Iterable[Type], allowed: Iterable[str]) -> None:
        """Report a side that can also be of a kind that the operator does not take, such as null."""
        for found, operand in zip(sides, (node.left, node.right), strict=True):
            others = tuple(kind for kind in found if kind.name not in (*allowed, "any"))
            if others:
                source = source_text(operand)
                fix = f"write `{source} != null && ...`" if kind_names(others) == {"null"} and path_of(operand) else ""
                message = f"{label_of(operand)} can be {words_for(others)}, which `{node.operator}` does not take"
                self._report(start_of(operand), message, fix, "optional")

    def _compare(self, node: Binary, facts: Facts) -> Type:
        left, right = self.check(node.left, facts), self.check(node.right, facts)
        if not left or not right:
            return BOOL
        is_equality = node.operator in ("==", "!=")
        pairs = [(one, other) for one in left for other in right if fits(one, other, is_equality=is_equality)]
        if not pairs:
            message = f"`{node.operator}` compares {words_for(left)} with {words_for(right)}"
            never = ", which are never equal" if is_equality else ", which have no order"
            return self._report(node.at, message + never)
        fitting = [one for one, _ in pairs], [other for _, other in pairs]
        if not is_equality:
            self._only(node, (left, right), {one.name for side in fitting for one in side})
        is_open = any("any" in (one.name, other.name) for one, other in pairs)
        results = {True, False} if is_open else {one for pair in pairs for one in outcomes(node.operator, *pair)}
        if is_equality and len(pairs) < len(left) * len(right):
            results.add(node.operator == "!=")
        return BOOL if len(results) > 1 else constant(results.pop())

    def _member(self, node: Binary, facts: Facts) -> Type:
        left, right = self.check(node.left, facts), self.check(node.right, facts)
        if not left or not right:
            return BOOL
        found = [kind for kind in right if kind.name in ("list", "map", "any")]
        if not found:
            return self._report(
                node.at, f"`in` needs a list or an object; {label_of(node.right)} is {words_for(right)}"
            )
        self._only(Binary("in", node.left, node.right, node.at), (left, right), {"list", "map", *kind_names(left)})
        items = [STRING_TYPE if one.name == "map" else one.items() if one.items else ANY for one in found]
        pairs = [(one, other) for one in left for item in items for other in item if fits(one, other, is_equality=True)]
        is_empty = isinstance(node.right, ListOf) and not node.right.items
        if not pairs and not is_empty and any(items):
            message = f"{label_of(node.left)} is {words_for(left)}, and is never in a list of {words_for(union(items))}"
            return self._report(node.at, message)
        compared = comparison_of(node)
        return BOOL if compared is None else self._one_of(compared, left)

    def _one_of(self, compared: Comparison, left: Type) -> Type:
        """Return the type of `path in [constants]`."""
        if not all(kind.possible() is not None for kind in left):
            can_be = {True, False} if compared.values else {False}
        else:
            possible = [one for kind in left for one in kind.possible() or ()]
            keys = {scalar_key(value) for value in compared.values}
            can_be = {scalar_key(one) in keys for one in possible}
        return BOOL if len(can_be) > 1 else constant(can_be.pop())

    # -- functions ------------------------------------------------------------------------------------

    def _call(self, node: FunctionCall, facts: Facts) -> Type:
        args = [self.check(one, facts) for one in node.args]
        if node.function == "size":
            self._argument(node, args[0], ("string", "list", "map"))
            return SIZE
        if node.function in _TEXT_METHODS:
            for found in args:
                self._argument(node, found, ("string",))
            if node.function == "matches":
                self._pattern(node.args[1])
            return BOOL
        self._argument(node, args[0], _CONVERTIBLE[node.function])
        return _RESULTS[node.function]

    def _argument(self, node: FunctionCall, found: Type, allowed: tuple[str, ...]) -> None:
        names = kind_names(found)
        if not found or "any" in names or names <= set(allowed):
            return
        expected = words_for(tuple(Kind(name) for name in allowed))
        kind = "optional" if names & set(allowed) else "invalid"
        self._report(node.at, f"`{node.function}` takes {expected}, not {words_for(found)}", kind=kind)

    def _pattern(self, node: Node) -> None:
        if not isinstance(node, Literal) or not isinstance(node.value, str):
            self._report(start_of(node), "`matches` takes a pattern in quotation marks")
            return
        try:
            compile_schema({"pattern": node.value})
        except SchemaInvalid as error:
            self._report(node.at, f"invalid pattern: {error}")

    def _macro(self, node: Macro, facts: Facts) -> Type:
        source = self.check(node.source, facts)
        found = [kind for kind in source if kind.name in ("list", "map", "any")]
        if source and not found:
            self._report(
                node.at,
                f"`{node.function}` needs a list or an object; {label_of(node.source)} is {words_for(source)}",
            )
        elif len(found) < len(source):
            others = tuple(kind for kind in source if kind not in found)
            self._report(
                node.at, f"{label_of(node.source)} can be {words_for(others)}", "compare it before", "optional"
            )
        if node.variable in (*self.scope.names, *self._items):
            self._report(node.at, f"`{node.variable}` is already a name", "use another name for the item")
        item = union(STRING_TYPE if one.name == "map" else one.items() if one.items else ANY for one in found)
        if is_double(item):
            self.doubles.add(node.at)
        outer = dict(self._items)
        self._items[node.variable] = item
        inner: Facts | None = facts
        if node.condition is not None:
            self._bool(node.condition, facts)
            inner = assume(node.condition, facts, self.types, truth=True)
        result = item if node.result is None else self.check(node.result, facts if inner is None else inner)
        self._items = outer
        return list_of(result) if node.function in ("map", "filter") else BOOL


def _results(found: Type) -> set[bool]:
    return {bool(value) for kind in found for value in kind.possible() or (True, False)}


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    there_are = f"there are {', '.join(f'`{one}`' for one in names[:10])}" if names else ""
    return nearest(word, names) or there_are
