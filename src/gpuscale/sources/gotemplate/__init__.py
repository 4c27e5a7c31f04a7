"""Go's text/template with `<<` `>>`, as far as rule files use it: compile once, render often.

Served: text, fields, `index`, `print`, `println`, `printf` (%s %v %q %d), `len`, comparisons, `and or
not`, pipes, parentheses, variables, comments, trimming, `if`/`else if`/`else`, `range`, `with`.
Not served, each refused by name when a rule is loaded: `define`, `template`, `block`, `break`,
`continue`, `call`, `slice`, `html`, `js`, `urlquery`, and functions that Go does not have either.

Source: Go's text/template (lex.go, parse.go, exec.go, funcs.go), release 1.22.
"""

from gpuscale.sources.gotemplate.errors import TemplateError
from gpuscale.sources.gotemplate.parser import parse_template
from gpuscale.sources.gotemplate.render import Template

__all__ = ["Template", "TemplateError", "parse_template"]
