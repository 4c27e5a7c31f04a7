"""Query templates and `name.as` against what Go itself makes of them.

The answers were made by Go 1.26.8 with tests/data/metrics_api/go_text/main.go.
"""

import json
from pathlib import Path

import pytest

from gpuscale.base.golang.template import TemplateError, parse_template
from gpuscale.base.regex import compile_re2
from gpuscale.server.rules.expand import compile_expansion
from gpuscale.server.rules.query import FIELDS

GO = json.loads((Path(__file__).parents[2] / "data/metrics_api/go_text/cases.json").read_text())
# What Go can do and rule files have no use for: each is refused by its name.
NOT_SERVED = {
    '<<printf "%s">>': "no value for %s",
    '<<printf "%d" .Series>>': "%d of type string is not served",
    "<<true>> <<false>> <<1>> <<1.5>> <<-3>> <<0x10>> <<'a'>> <<1e3>>": 'unexpected "\'"',
    "<<$>>": "can't print the whole data",
    "<<.>>": "can't print the whole data",
    "<<range 3>>x<<end>>": "range can't iterate over a int",
    "<<slice .Series 0 4>>": "function 'slice' is not served",
    '<<html "<a>">>': "function 'html' is not served",
    '<<urlquery "a b">>': "function 'urlquery' is not served",
    '<<js "a\'b">>': "function 'js' is not served",
    '<<define "x">>a<<end>><<template "x">>': "<<define>> is not served",
    '<<block "x" .>>a<<end>>': "<<block>> is not served",
    "<<range .GroupBySlice>><<break>><<end>>": "<<break>> is not served",
    '<<printf "%v %v" 1>>': "no value for %v",
    '<<printf "%v" 1 2>>': "more values than verbs",
    '<<printf "%[1]s" "a">>': "is not served",
}
# Go prints `%!s(int=1)`, which is no PromQL.
OTHERWISE = {'<<printf "%s" 1>>'}


def rendered(template, data):
    """Return the text; None for an error, and its message."""
    fields = {**data, "GroupBySlice": tuple(data["GroupBySlice"])}
    try:
        return parse_template(template, FIELDS).render(fields), ""
    except TemplateError as error:
        return None, str(error)


@pytest.mark.parametrize(
    ("template", "full", "empty"),
    [case for case in GO["templates"] if case[0] not in OTHERWISE],
    ids=lambda value: value or "-",
)
def test_templates_render_as_in_go(template, full, empty) -> None:
    for data, expected in ((GO["full"], full), (GO["empty"], empty)):
        text, message = rendered(template, data)
        if template in NOT_SERVED:
            assert (text, NOT_SERVED[template] in message) == (None, True), message
        else:
            assert text == expected, message


@pytest.mark.parametrize("pattern", GO["expansions"])
def test_names_expand_as_in_go(pattern) -> None:
    compiled = compile_re2(pattern)
    for expansion, names in GO["expansions"][pattern].items():
        for name, expected in names.items():
            match = compiled.search(name)
            found = None if match is None else compile_expansion(expansion, compiled).apply(match)
            assert found == expected, (expansion, name)
