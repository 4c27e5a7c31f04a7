"""Random PromQL: every function, aggregation, operator, matching mode and modifier, and nestings of them.

`promql_samples` has the series that they select. Queries that gpuscale is meant to answer otherwise are left
out where they can be: `KNOWN` of test_promql_differential.py names them.
"""

import re

from promql_samples import END, START

EACH = 25
"""Queries for each function, aggregation, operator and matching mode, of the 9 300 of one round."""
NESTED = 4_000
"""Queries that combine whatever there is."""

MATCHERS = [
    *[""] * 9,
    '{node="a"}',
    '{node!="a"}',
    '{node=~"a|c"}',
    '{node!~"b.*"}',
    '{node=""}',
    '{gpu=~".+"}',
    '{node="a",gpu!="0"}',
    '{nosuch=""}',
    '{nosuch!=""}',
    '{kind=~"u.*"}',
]
GAUGES = [
    *["util", "util", "mem", "odd", "slow", "ended", "one", "flat", "nosuch"],
    *["lone", "lone", "rare", "rare", "typed"],
]
EXACT = ["util", "util", "mem", "ended", "one", "flat", "slow", "info", "lone", "rare", "typed"]
COUNTERS = [
    *["req_total", 'req_total{code="200"}', 'req_total{path=~"/(chat|health)"}', "util"],
    *["rare_total", "rare_total", 'rare_total{gpu="0"}'],
]
DURATIONS = ["15s", "30s", "1m", "2m", "5m", "17s", "10m", "1m30s", "7s", "45s"]
STEPS = ["", "15s", "30s", "1m", "7s", "47s"]
OFFSETS = ["15s", "1m", "-1m", "7s", "-13s", "5m"]
LABELS = ["node", "gpu", "pod", "zone", "kind", "path", "code", "nosuch", "le"]
NUMBERS = [
    "0",
    "1",
    "2",
    "0.5",
    "-1",
    "-3.25",
    "10",
    "1e3",
    "NaN",
    "Inf",
    "-Inf",
    "0x1F",
    "time()",
    "pi()",
    "scalar(one)",
    "(2 + 3)",
    "-(1)",
]
AT = re.compile(r" @ (?:start\(\)|end\(\)|[\d.]+)")
SHARES = ["0", "0.5", "0.9", "0.25", "1", "-1", "2", "NaN", "scalar(flat)/10"]
COUNTS = ["1", "2", "3", "0", "-1", "100", "scalar(flat)", "2.7"]

SMOOTH = [
    "exp",
    "ln",
    "log2",
    "log10",
    "sqrt",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "deg",
    "rad",
    "abs",
]
PERIODIC = ["sin", "cos", "tan"]
JUMPING = [
    "ceil",
    "floor",
    "round",
    "sgn",
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "hour",
    "minute",
    "month",
    "year",
]
RATES = ["rate", "increase", "irate", "delta", "idelta", "deriv"]
EXACT_OVER_TIME = [
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "last_over_time",
    "present_over_time",
    "changes",
    "resets",
    "idelta",
]
SMOOTH_OVER_TIME = ["avg_over_time", "stddev_over_time", "stdvar_over_time"]
AGGREGATIONS = ["sum", "avg", "min", "max", "count", "stddev", "stdvar", "group"]
EXACT_AGGREGATIONS = ["sum", "min", "max", "count", "group"]
ARITHMETIC = ["+", "-", "*", "/", "%", "^", "atan2"]
COMPARISONS = ["==", "!=", ">", "<", ">=", "<="]
SETS = ["and", "or", "unless"]
# Where two buckets have one bound, Prometheus counts them twice for the second quantile (docs/promql.md).
# Of counts alone: the last digit of a rate decides where a rank lies on a bucket's edge.
HISTOGRAMS = ['lat_bucket{job!="twice"}', 'sum by (le, job) (lat_bucket{job!="twice"})']
NEWER = [
    "mad_over_time",
    "first_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
    "ts_of_max_over_time",
    "ts_of_min_over_time",
]
HUGE = [
    *["stdvar_over_time", "stddev_over_time", "avg_over_time", "sum_over_time", "max_over_time"],
    *["delta", "idelta", "changes", "mad_over_time"],
]
"""What is asked of numbers near 2^53; the rest loses them in the last digits of either side."""


class Grammar:
    """Random expressions; "exact" ones are known to both sides to the last bit.

    Args:
        rng: where choices come from.
    """

    def __init__(self, rng) -> None:
        self.rng = rng

    def pick(self, options):
        return self.rng.choice(options)

    def chance(self, share):
        return self.rng.random() < share

    # selectors

    def modifiers(self, share=0.25):
        found = []
        if self.chance(share):
            found.append(f" offset {self.pick(OFFSETS)}")
        if self.chance(share / 2):
            at = [
                f"{END - 600}",
                f"{START + 333}",
                f"{END}.25",
                f"{END - 90}.5",
                f"{END - 200}",
                "start()",
                "end()",
            ]
            found.append(f" @ {self.pick(at)}")
        self.rng.shuffle(found)
        return "".join(found)

    def selector(self, names=GAUGES, share=0.25):
        name = self.pick(names)
        matchers = "" if "{" in name else self.pick(MATCHERS)
        return f"{name}{matchers}{self.modifiers(share)}"

    def window(self, names=GAUGES, depth=0):
        if self.chance(0.3):
            return self.subquery(self.inner(names, depth))
        name = self.pick(names)
        matchers = "" if "{" in name else self.pick(MATCHERS)
        return f"{name}{matchers}[{self.pick(DURATIONS)}]{self.modifiers()}"

    def inner(self, names, depth):
        if names is EXACT:
            return self.exact(depth)
        return self.selector(names) if names is COUNTERS else self.vector(depth)

    def subquery(self, inner):
        return f"({inner})[{self.pick(DURATIONS)}:{self.pick(STEPS)}]{self.modifiers()}"

    # operands

    def exact(self, depth):
        """An instant vector of small multiples of 1/8, or at least the same bits on both sides."""
        if depth <= 0:
            return self.selector(EXACT)
        return self.pick(
            [
                lambda: self.selector(EXACT),
                lambda: (
                    f"{self.pick(EXACT_AGGREGATIONS)} {self.grouping()}({self.exact(depth - 1)})"
                ),
                lambda: f"{self.pick(EXACT_OVER_TIME)}({self.window(EXACT, depth - 1)})",
                lambda: (
                    f"({self.exact(depth - 1)} {self.pick('+-')} {self.pick(['1', '0.5', '100'])})"
                ),
                lambda: f"({self.exact(depth - 1)} {self.pick(SETS)} {self.exact(depth - 1)})",
                lambda: (
                    f"({self.exact(depth - 1)} {self.pick('+-')} {self.matching()} {self.exact(depth - 1)})"
                ),
                lambda: f"-{self.selector(EXACT)}",
                lambda: f"clamp_min({self.exact(depth - 1)}, 3)",
                lambda: (
                    f"({self.exact(depth - 1)} {self.pick(COMPARISONS)} {self.pick(['100', '50.5'])})"
                ),
                lambda: self.relabelled(self.exact(depth - 1)),
                lambda: self.timestamp(self.exact(depth - 1)),
            ]
        )()

    def vector(self, depth):
        """Any instant vector."""
        if depth <= 0:
            return self.selector()
        return self.pick(
            [
                lambda: self.selector(),
                lambda: self.call(depth),
                lambda: self.call(depth),
                lambda: self.aggregation(depth),
                lambda: self.aggregation(depth),
                lambda: self.binary(depth),
                lambda: self.binary(depth),
                lambda: self.exact(depth),
                lambda: f"-({self.vector(depth - 1)})",
                lambda: f"({self.vector(depth - 1)})",
            ]
        )()

    def call(self, depth):
        return self.pick(
            [
                lambda: self.over_time(self.pick(RATES), depth),
                lambda: self.over_time(self.pick(EXACT_OVER_TIME + SMOOTH_OVER_TIME), depth),
                lambda: f"{self.pick(SMOOTH)}({self.vector(depth - 1)})",
                lambda: f"{self.pick(JUMPING + PERIODIC)}({self.exact(depth - 1)})",
                lambda: self.clamped(depth),
                lambda: self.absent(depth),
                lambda: self.relabelled(self.vector(depth - 1)),
                lambda: self.quantile(),
                lambda: self.quantile_over_time(depth),
                lambda: self.predicted(),
                lambda: f"vector({self.scalar(depth - 1)})",
                lambda: self.timestamp(self.vector(depth - 1)),
            ]
        )()

    def over_time(self, function, depth=1):
        names = COUNTERS if function in {"rate", "increase", "irate", "resets"} else GAUGES
        return f"{function}({self.window(names, depth - 1)})"

    def clamped(self, depth):
        inner = self.vector(depth - 1)
        return self.pick(
            [
                f"clamp({inner}, {self.pick(NUMBERS)}, {self.pick(NUMBERS)})",
                f"clamp_min({inner}, {self.pick(NUMBERS)})",
                f"clamp_max({inner}, {self.pick(NUMBERS)})",
            ]
        )

    def absent(self, depth):
        selector = self.pick(
            [
                "nosuch",
                "util",
                '{node="a"}',
                'nosuch{a="x",b=~"y",c!="z"}',
                'util{gpu="9"}',
                'nosuch{a="x",a="y"}',
                "slow",
                "ended",
            ]
        )
        inner = self.pick([f"{selector}{self.modifiers()}", self.vector(depth - 1)])
        if self.chance(0.5):
            return f"absent({inner})"
        ranged = [f"{selector}[{self.pick(DURATIONS)}]{self.modifiers()}", self.subquery(inner)]
        return f"absent_over_time({self.pick(ranged)})"

    def relabelled(self, inner):
        target, source = self.pick(LABELS), self.pick(LABELS)
        if self.chance(0.4):
            others = "".join(f', "{self.pick(LABELS)}"' for _ in range(self.rng.randrange(4)))
            return f'label_join({inner}, "{target}_x", "{self.pick(["", "-", ", "])}"{others})'
        replacement = self.pick(["$1", "x-$1-y", "${1}z", "$first", "$2", "", "$$", "fixed", "$1x"])
        expression = self.pick(["(.*)", "(.)(.*)", "(?P<first>.+)", "z.*", "", "nosuch", "p(0|1)"])
        return f'label_replace({inner}, "{target}_x", "{replacement}", "{source}", "{expression}")'

    def timestamp(self, inner):
        # Prometheus takes the offset twice where there is an @, as docs/promql.md says.
        return f"timestamp({AT.sub('', inner)})"

    def predicted(self):
        return f"predict_linear({self.window()}, {self.pick(NUMBERS)})"

    def quantile_over_time(self, depth):
        return f"quantile_over_time({self.pick(SHARES)}, {self.window(depth=depth - 1)})"

    def smoothed(self):
        factors = f"0.{self.pick('159')}, {self.pick(['0.3', '0.8'])}"
        return f"double_exponential_smoothing({self.window()}, {factors})"

    def quantile(self):
        buckets = self.pick(
            [
                f"lat_bucket{self.modifiers()}",
                'lat_bucket{job="chat"}',
                "rate(lat_bucket[5m])",
                "sum by (le, job) (rate(lat_bucket[2m]))",
                "sum by (le) (lat_bucket)",
                'increase(lat_bucket{job=~"embed|twice"}[1m])',
                "util",
                'lat_bucket{le!="+Inf"}',
            ]
        )
        share = self.pick(SHARES)
        if "rate" in buckets:
            # A sum of rates is rounded, and 0.9 of it may or may not reach the border of a bucket.
            share = share.replace("0.9", "0.91734")
        return f"histogram_quantile({share}, {buckets})"

    def scalar(self, depth):
        return self.pick(
            [
                lambda: self.pick(NUMBERS),
                lambda: (
                    f"({self.pick(NUMBERS)} {self.pick(['+', '-', '*', '/', '^', '%'])} {self.pick(NUMBERS)})"
                ),
                lambda: f"scalar({self.exact(depth - 1)})",
                lambda: (
                    f"({self.pick(NUMBERS)} {self.pick(COMPARISONS)} bool {self.pick(NUMBERS)})"
                ),
                lambda: f"-{self.pick(['1', '2.5', 'time()', 'scalar(one)'])}",
            ]
        )()

    # aggregations

    def grouping(self):
        labels = ", ".join(self.rng.sample(LABELS, self.rng.randrange(4)))
        return self.pick(["", f"by ({labels}) ", f"without ({labels}) "])

    def aggregation(self, depth):
        return self.pick(
            [
                lambda: self.reduced(self.pick(AGGREGATIONS), depth),
                lambda: self.reduced(self.pick(AGGREGATIONS), depth),
                lambda: self.ranked(self.pick(["topk", "bottomk"])),
                lambda: self.shared(depth),
                lambda: self.counted(depth),
            ]
        )()

    def reduced(self, aggregation, depth):
        inner = self.vector(depth - 1)
        grouping = self.grouping()
        if self.chance(0.2):
            return f"{aggregation}({inner}) {grouping}"
        return f"{aggregation} {grouping}({inner})"

    def ranked(self, aggregation):
        # Which of several equal ones are kept is open, so all values of these differ.
        inner = self.pick(
            [
                'util{node="a"}',
                "util",
                "util offset 1m",
                "one",
                "max_over_time(mem[1m])",
                "avg_over_time(util[2m])",
                "mem * 2",
            ]
        )
        return f"{aggregation} {self.grouping()}({self.pick(COUNTS)}, {inner})"

    def shared(self, depth):
        return f"quantile {self.grouping()}({self.pick(SHARES)}, {self.vector(depth - 1)})"

    def counted(self, depth):
        grouping, label = self.grouping(), self.pick(["value", "node", "kind"])
        return f'count_values {grouping}("{label}", {self.exact(depth - 1)})'

    # operators

    def matching(self):
        labels = ", ".join(
            self.rng.sample(["node", "gpu", "pod", "kind", "nosuch"], self.rng.randrange(1, 3))
        )
        return self.pick(["", "", f"on ({labels})", f"ignoring ({labels})", "on ()", "ignoring ()"])

    def binary(self, depth):
        return self.pick(
            [
                lambda: self.with_scalar(self.pick(ARITHMETIC), depth),
                lambda: self.with_scalar(self.pick(COMPARISONS), depth),
                lambda: self.one_to_one(self.pick(ARITHMETIC + COMPARISONS)),
                lambda: self.grouped(self.pick(ARITHMETIC + COMPARISONS)),
                lambda: self.of_sets(self.pick(SETS), depth),
                lambda: self.of_vectors(depth),
            ]
        )()

    def of_vectors(self, depth):
        left, right = self.vector(depth - 1), self.vector(depth - 1)
        return f"({left} {self.pick('+-*/')} {self.matching()} {right})"

    def with_scalar(self, operator, depth):
        jumps = operator in COMPARISONS or operator == "%"
        vector = self.exact(depth - 1) if jumps else self.vector(depth - 1)
        sides = [vector, self.pick(NUMBERS)]
        self.rng.shuffle(sides)
        return f"({sides[0]} {self.maybe_bool(operator)} {sides[1]})"

    def maybe_bool(self, operator):
        return f"{operator} bool" if operator in COMPARISONS and self.chance(0.4) else operator

    def one_to_one(self, operator):
        left, match, right = self.pick(
            [
                ("util", "on (node, gpu)", "mem"),
                ("util", "ignoring (pod, zone, kind)", "mem"),
                ("util", "", "util offset 1m"),
                ("sum by (node) (util)", "", "max by (node) (mem)"),
                ("sum by (node, pod) (util)", "on (node, pod)", "info"),
                ('util{gpu="1"}', "ignoring (gpu)", 'util{gpu="1"} offset 2m'),
                ("one", "on ()", "flat"),
                ("ended", "", "ended offset 5m"),
                ("odd", "", "odd"),
                ("odd", "on (kind)", "odd offset 15s"),
                ("slow", "ignoring (kind)", "one"),
                ("lone", "on (node, gpu)", "rare"),
                ("lone", "", "lone offset 1m"),
                ("rare", "", "rare offset 47s"),
                ("typed", "", "typed offset 2m"),
                ("typed", "ignoring (gpu)", 'rare{gpu="1"}'),
                ('typed{gpu="0"}', "", "lone"),
            ]
        )
        return f"({left} {self.maybe_bool(operator)} {match} {right})"

    def grouped(self, operator):
        left, match, side, include, right = self.pick(
            [
                (
                    "util",
                    "on (node, pod)",
                    "left",
                    ["", "app", "app, team", "zone", "nosuch"],
                    "info",
                ),
                ("info", "on (node, pod)", "right", ["", "app", "app, team"], "util"),
                ("util", "ignoring (gpu, pod, zone)", "left", ["", "kind"], "sum by (node) (mem)"),
                ("util", "on (node)", "left", ["", "gpu", "pod"], "max by (node, kind) (mem)"),
                ("mem", "on ()", "left", ["", "kind"], "flat"),
                ("flat", "on ()", "right", [""], "mem"),
                ("sum by (node) (mem)", "on (node)", "right", [""], "util"),
                ("req_total", "on (path)", "left", [""], 'req_total{code="200"}'),
            ]
        )
        return f"({left} {self.maybe_bool(operator)} {match} group_{side} ({self.pick(include)}) {right})"

    def of_sets(self, operator, depth):
        return f"({self.vector(depth - 1)} {operator} {self.matching()} {self.vector(depth - 1)})"

    # what both sides refuse

    def wrong(self):
        return self.pick(
            [
                lambda: f"rate({self.selector()})",
                lambda: f"{self.pick(SMOOTH)}(5)",
                lambda: f"{self.pick(SMOOTH)}({self.window()})",
                lambda: f"{self.pick(SMOOTH)}({self.selector()}, {self.selector()})",
                lambda: f"{self.pick(AGGREGATIONS)}({self.pick(NUMBERS)})",
                lambda: f"{self.pick(AGGREGATIONS)}({self.window()})",
                lambda: f"1 {self.pick(COMPARISONS)} 2",
                lambda: f"1 {self.pick(SETS)} {self.selector()}",
                lambda: (
                    f"({self.selector()}) {self.pick(SETS)} on (node) group_left {self.selector()}"
                ),
                lambda: f"util + on (node) group_left (node) {self.selector()}",
                lambda: f"util + bool {self.selector()}",
                lambda: f"{self.window()} + 1",
                lambda: f"nosuchfunction({self.selector()})",
                lambda: f"topk({self.selector()})",
                lambda: f'topk("1", {self.selector()})',
                lambda: f"count_values(1, {self.selector()})",
                lambda: f'label_replace({self.selector()}, "a", "b", "c")',
                lambda: f'label_replace({self.selector()}, "a", "b", "c", "(")',
                lambda: 'label_replace(util, "", "b", "node", ".*")',
                lambda: 'label_join(util, "", "-", "node")',
                lambda: f"util offset 1m offset {self.pick(OFFSETS)}",
                lambda: (
                    f"util{self.pick(['{', '}', '[', ')', '[5m', '[5m]]', '{a=b}', '{a}', '[0s]', '[:1m]'])}"
                ),
                lambda: self.pick(
                    ["{}", "{a=~'.*'}", "{a!='x'}", "util{__name__='x'}", "sum by", "", "util util"]
                ),
                lambda: f"({self.selector()})[5m]",
                lambda: f"{self.selector()} {self.pick(ARITHMETIC)}",
                lambda: f"quantile_over_time({self.window()}, 0.5)",
                lambda: f"predict_linear({self.window()})",
                lambda: "util * on (node) mem",
                lambda: f"util {self.pick(ARITHMETIC)} on (pod) info",
                lambda: "topk(NaN, util)",
                lambda: f'abs({{__name__=~"util|util_total|flat"}}) + on () {self.selector()}',
                lambda: 'rate({__name__=~"util|mem"}[1m]) * on (kind) util',
                lambda: f"vector({self.selector()})",
                lambda: f"scalar({self.pick(NUMBERS)})",
                lambda: f'-"{self.pick(LABELS)}"',
                lambda: (
                    f"double_exponential_smoothing(util[5m], {self.pick(['0', '1', '2'])}, 0.5)"
                ),
            ]
        )()

    def all(self):
        """Yield every query, and what it was made for."""
        for name, make in self.shares():
            for _ in range(EACH):
                yield name, make()
        for _ in range(NESTED):
            yield "nested", self.vector(3)
        for _ in range(NESTED // 5):
            yield "wrong", self.wrong()

    def shares(self):
        """Yield the name of each part of the language, and how a query of it is made."""
        yield "timestamp", lambda: self.timestamp(self.vector(1))
        for name in SMOOTH:
            yield name, lambda name=name: f"{name}({self.vector(1)})"
        for name in JUMPING + PERIODIC:
            yield name, lambda name=name: f"{name}({self.exact(1)})"
        for name in JUMPING[4:]:
            yield (
                name,
                lambda name=name: (
                    f"{name}({self.pick(['', 'vector(time() * 7.3)', 'util * 86400 * 31'])})"
                ),
            )
        yield (
            "round to",
            lambda: f"round({self.exact(1)}, {self.pick(['0.5', '10', '-2', '0', '0.25', 'NaN'])})",
        )
        for name in (
            *RATES,
            *EXACT_OVER_TIME,
            *SMOOTH_OVER_TIME,
            *NEWER,
        ):
            yield name, lambda name=name: self.over_time(name)
        for make in (self.clamped, self.absent, self.shared, self.counted, self.call):
            yield make.__name__, lambda make=make: make(1)
        yield "label functions", lambda: self.relabelled(self.vector(1))
        yield "histogram_quantile", self.quantile
        yield "quantile_over_time", lambda: self.quantile_over_time(1)
        yield "predict_linear", self.predicted
        yield "double_exponential_smoothing", self.smoothed
        for name in HUGE:
            yield (
                f"{name} near 2^53",
                lambda name=name: f"{name}(huge[{self.pick(DURATIONS)}]{self.modifiers()})",
            )
        for name in ("vector", ""):
            yield f"{name} scalar", lambda name=name: f"{name}({self.scalar(1)})"
        yield "scalar", lambda: f"scalar({self.exact(1)})"
        for name in ("sort", "sort_desc"):
            yield name, lambda name=name: f"{name}({self.selector()})"
        for name in AGGREGATIONS:
            yield name, lambda name=name: self.reduced(name, 2)
        for name in ("topk", "bottomk"):
            yield name, lambda name=name: self.ranked(name)
        for name in ARITHMETIC + COMPARISONS:
            yield f"{name} scalar", lambda name=name: self.with_scalar(name, 2)
            yield f"{name} one to one", lambda name=name: self.one_to_one(name)
            yield f"{name} grouped", lambda name=name: self.grouped(name)
        yield (
            "atan2",
            lambda: f"(abs({self.exact(1)}) atan2 {self.matching()} abs({self.exact(1)}))",
        )
        for name in SETS:
            yield name, lambda name=name: self.of_sets(name, 2)
        yield "selector", lambda: self.selector(share=0.9)
        yield (
            "range",
            lambda: (
                f"{self.pick(GAUGES)}{self.pick(MATCHERS)}[{self.pick(DURATIONS)}]{self.modifiers(0.9)}"
            ),
        )
        for name in (*RATES, *EXACT_OVER_TIME, *SMOOTH_OVER_TIME, *NEWER, "absent_over_time"):
            yield (
                f"{name} of a subquery",
                lambda name=name: f"{name}({self.subquery(self.exact(1))})",
            )
        for name, numbers in (
            ("predict_linear({}, {})", NUMBERS),
            ("double_exponential_smoothing({}, 0.5, {})", ["0.3", "0.8"]),
        ):
            yield (
                f"{name} of a subquery",
                lambda name=name, numbers=numbers: name.format(
                    self.subquery(self.exact(1)), self.pick(numbers)
                ),
            )
        yield (
            "quantile_over_time of a subquery",
            lambda: f"quantile_over_time({self.pick(SHARES)}, {self.subquery(self.vector(1))})",
        )
        yield (
            "subquery of histogram_quantile",
            lambda: f"max_over_time({self.subquery(self.quantile())})",
        )
        yield "subquery", lambda: self.subquery(self.vector(2))
        yield (
            "subquery in a function",
            lambda: f"{self.pick(EXACT_OVER_TIME)}({self.subquery(self.exact(2))})",
        )
        for name in ("sort_by_label", "sort_by_label_desc"):
            yield name, lambda name=name: self.sorted_by_label(name)
        yield "limitk", self.limited
        yield "limit_ratio", self.sampled
        yield "histogram_fraction", self.fraction
        yield "histogram_quantiles", self.quantiles
        for name in ("start", "end", "step", "range"):
            yield name, lambda name=name: f"{self.selector()} + {name}()"
        for name in ("min_of", "max_of"):
            yield name, lambda name=name: f"{name}({self.scalar(1)}, {self.scalar(1)})"
        yield "fill", self.filled

    def sorted_by_label(self, function):
        return f'{function}({self.selector()}, "{self.pick(LABELS)}", "{self.pick(LABELS)}")'

    def limited(self):
        # Which ones are kept is open, how many is not.
        return f"count {self.grouping()}(limitk by (node) ({self.pick(COUNTS)}, util))"

    def sampled(self):
        ratio = self.pick(["0.5", "-0.5", "0", "1", "-1", "3", "0.1"])
        return f"limit_ratio {self.grouping()}({ratio}, {self.selector()})"

    def fraction(self):
        buckets = self.pick(["lat_bucket", "rate(lat_bucket[2m])"])
        return f"histogram_fraction({self.pick(NUMBERS)}, {self.pick(NUMBERS)}, {buckets})"

    def quantiles(self):
        return f'histogram_quantiles({self.pick(HISTOGRAMS)}, "q", {self.pick(SHARES)}, 0.7)'

    def filled(self):
        fill = f"{self.pick(['fill', 'fill_left', 'fill_right'])}({self.pick(['0', '-1.5'])})"
        operator, grouping = (
            self.pick(["+", "-", "=="]),
            self.pick(["", "", "group_left ()", "group_right ()"]),
        )
        matchers, others = self.pick(MATCHERS), self.pick(MATCHERS)
        right = f"{self.pick(['mem', 'lone', 'rare'])}{matchers}"
        return f"util{others} {operator} on (node, gpu) {grouping} {fill} {right}"
