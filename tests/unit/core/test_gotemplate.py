# mypy: disable-error-code="arg-type"
"""The template language, case by case as Go's text/template prints it."""

import pytest

from gpuscale.base.golang.template import TemplateError, parse_template

FIELDS = frozenset({"Series", "Labels", "Values", "Slice", "Empty"})
DATA = {
    "Series": "foo",
    "Labels": 'a="b"',
    "Values": {"ns": "default", "app": "x"},
    "Slice": ("pod", "gpu"),
    "Empty": (),
}


def render(text: str) -> str:
    return parse_template(text, FIELDS).render(DATA)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain >> text", "plain >> text"),
        ("sum(<<.Series>>{<<.Labels>>})", 'sum(foo{a="b"})'),
        ("<< .Series >>", "foo"),
        ("<<.Slice>>", "[pod gpu]"),
        ("<<.Empty>>", "[]"),
        ("<<.Values>>", "map[app:x ns:default]"),
        ("<<.Values.ns>>", "default"),
        ("<<.Values.missing>>", "<no value>"),
        ('<<index .Values "ns">>', "default"),
        ('<<index .Values "missing">>', ""),
        ("<<index .Slice 1>>", "gpu"),
        ("<<len .Slice>> <<len .Values>> <<len .Series>>", "2 2 3"),
        ("<<true>> <<1.5>> <<-3>> <<0x10>>", "true 1.5 -3 16"),
        ("<<`raw \\n`>>", "raw \\n"),
        (r'<<"a\tb\"\x41\u00e9">>', 'a\tb"Aé'),
        ("a <<- .Series ->> b", "afoob"),
        ("a <</* gone */>> b", "a  b"),
        ("a <<- /* gone */ ->> b", "ab"),
        ("<<if .Empty>>yes<<else>>no<<end>>", "no"),
        ("<<if .Slice>>yes<<end>>", "yes"),
        ('<<if eq .Series "bar">>1<<else if eq .Series "x" "foo">>2<<else>>3<<end>>', "2"),
        ("<<if and .Series (not .Empty)>>both<<end>>", "both"),
        ('<<or .Empty .Series>> <<and .Series "last">>', "foo last"),
        ("<<range .Slice>>[<<.>>]<<end>>", "[pod][gpu]"),
        ("<<range $i, $e := .Slice>><<if $i>>,<<end>><<$e>><<end>>", "pod,gpu"),
        ("<<range $k, $v := .Values>><<$k>>=<<$v>>;<<end>>", "app=x;ns=default;"),
        ("<<range .Empty>>x<<else>>none<<end>>", "none"),
        ("<<with .Values>><<.ns>><<else>>none<<end>>", "default"),
        ("<<with $v := .Series>><<$v>>/<<$.Labels>><<end>>", 'foo/a="b"'),
        ("<<$x := .Series>><<if true>><<$x = .Labels>><<end>><<$x>>", 'a="b"'),
        ("<<.Series | printf `%s-%q-%v-%d%%` .Slice .Labels>>", None),
        ("<<printf `%s|%q|%v|%d%%` .Series .Labels .Slice 7>>", 'foo|"a=\\"b\\""|[pod gpu]|7%'),
        ("<<.Series | print `x`>>", "xfoo"),
        ("<<print 1 2 `a` 3>>|<<println .Series>>", "1 2a3|foo\n"),
        ("<<(index .Slice 0)>> <<len (print .Series .Series)>>", "pod 6"),
        ("<<lt 1 2>> <<le 2 2>> <<gt `b` `a`>> <<ge 1 2>> <<ne 1 2>>", "true true true false true"),
        ("<<1e21>> <<0.00001>> <<2.0>>", "1e+21 1e-05 2"),
    ],
)
def test_templates_print_what_go_prints(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(TemplateError):
            render(text)
    else:
        assert render(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<<", "unclosed action: found no >> for a <<"),
        ("<</* x", "unclosed comment: found no */ for a /*"),
        ("<</* x */ y>>", "comment ends before closing delimiter: expected >> right after */"),
        ("<<>>", "missing value for command"),
        (
            "<<.Nope>>",
            "unknown field .Nope; the fields are .Empty, .Labels, .Series, .Slice, .Values",
        ),
        (
            "<<$.Nope>>",
            "unknown field .Nope; the fields are .Empty, .Labels, .Series, .Slice, .Values",
        ),
        ("<<join .Slice>>", "function 'join' not defined"),
        ("<<urlquery .Series>>", "function 'urlquery' is not served"),
        ('<<define "x">><<end>>', "<<define>> is not served"),
        ("<<break>>", "<<break>> is not served"),
        ("<<if .Series>>x", "unexpected end of the template: expected <<end>> of <<if>>"),
        ("<<end>>", "unexpected <<end>>: nothing is open that it could end"),
        ("<<if true>><<else>><<else>><<end>>", "expected <<end>>; found a second <<else>>"),
        ("<<range .Slice>><<else if true>><<end>>", "unexpected 'if' in else"),
        ("<<if true>><<end x>>", "unexpected 'x' in end"),
        ("<<$x>>", "undefined variable '$x'"),
        ("<<if $x := .Series>><<end>><<$x>>", "undefined variable '$x'"),
        ("<<.Series .Labels>>", "can't give argument to non-function .Series"),
        ("<<.Series | .Labels>>", "can't give argument to non-function .Labels"),
        ("<<nil>>", "nil is not a command"),
        ("<<len>>", "wrong number of args for len: want 1 got 0"),
        ("<<eq 1>>", "wrong number of args for eq: want at least 2 got 1"),
        ("<<(.Series>>", "unclosed left paren"),
        ('<<.Series"x">>', "unexpected '\"x\"' in operand"),
        (r'<<"\q">>', r"bad string escape '\\q'"),
        ("<<.Series ? 1>>", "unexpected '?' in an action"),
        ("<<99999999999999999999>>", "bad number syntax: '99999999999999999999' is too large"),
        ("<<if true>>" * 40, "blocks are nested more than 32 deep"),
        ("<<" + "(" * 40 + ">>", "parentheses are nested more than 32 deep"),
        ("x" * 70_000, "found 70000 characters, expected at most 65536"),
    ],
)
def test_what_is_wrong_or_not_served_is_named_when_parsed(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        parse_template(text, FIELDS)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<<.Series.x>>", "can't evaluate field x in type string"),
        ("<<index .Slice 9>>", "index: index out of range: 9"),
        ("<<index .Slice `a`>>", "index: cannot index slice/array with type string"),
        ("<<index .Values 1>>", "index: value has type int; should be string"),
        ("<<index 5 1>>", "index: can't index item of type int"),
        ("<<eq .Slice .Slice>>", "eq: non-comparable type []string"),
        ("<<eq 1 `a`>>", "eq: incompatible types for comparison"),
        ("<<lt true false>>", "lt: invalid type for comparison"),
        ("<<len 3>>", "len of type int"),
        ("<<range .Series>><<end>>", "range can't iterate over a string"),
        ("<<.>>", "can't print the whole data; name one of its fields"),
        ("<<printf `%c` 65>>", "printf: %c of type int is not served"),
        ("<<printf `%s`>>", "printf: no value for %s"),
        ("<<printf `a` 1>>", "printf: more values than verbs in 'a'"),
    ],
)
def test_what_go_finds_wrong_while_rendering_is_an_error(text: str, message: str) -> None:
    template = parse_template(text, FIELDS)
    with pytest.raises(TemplateError) as caught:
        template.render(DATA)
    assert str(caught.value) == message


def test_rendering_is_bounded() -> None:
    text = "<<range $.Slice>>" * 20 + "x" + "<<end>>" * 20
    with pytest.raises(TemplateError, match=r"^gave up after 20000 steps$"):
        render(text)


def test_and_or_do_not_look_further_than_needed() -> None:
    assert render("<<or true (index .Slice 9)>> <<and false (index .Slice 9)>>") == "true false"
