"""Go's text/template, as far as rule files use it: compile once, render often.

A dialect says which delimiters and functions a kind of file has.

Served: text, fields, `index`, `print`, `println`, `printf` (%s %v %q %d %x %o %b %t %e %f %g, with flags,
width and precision), `len`, comparisons, `and or not`, pipes, parentheses, variables, comments, trimming,
`if`/`else if`/`else`, `range`, `with`.
Not served, each refused by name when a rule is loaded: `define`, `template`, `block`, `break`,
`continue`, `call`, `slice`, `html`, `js`, `urlquery`, and functions that Go does not have either.

Source: Go's text/template (lex.go, parse.go, exec.go, funcs.go), release 1.22.
"""

from gpuscale.base.golang.template.functions import ADAPTER, Dialect
from gpuscale.base.golang.template.parser import parse_template
from gpuscale.base.golang.template.render import Template
from gpuscale.base.golang.template.values import TemplateError

__all__ = ["ADAPTER", "Dialect", "Template", "TemplateError", "parse_template"]
