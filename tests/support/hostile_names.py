"""Names that break what does not escape: 500 of them, all different, always the same (FAILURES F4, F3).

Each is one that a node may have: at most 4,096 bytes of UTF-8, surrogates passed, without a NUL.
"""

from __future__ import annotations

import random
import re

# What separates lines, and what turns the direction of writing, beside control characters.
TURNING = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_CHARACTERS = (
    # What separates, quotes, ends or begins something in some format.
    '"', "'", "\\", "`", "<", ">", "&", "|", ",", ";", ":", "=", "+", "-", "@", "%", "#", "$", "!", "?", "*", "_",
    "~", "^", "/", "(", ")", "[", "]", "{", "}", " ", ".",
    # Control characters, line ends of all kinds, what is invisible or turns the writing.
    "\t", "\n", "\r", "\r\n", "\x01", "\x07", "\b", "\v", "\f", "\x1b", "\x1f", "\x7f", "\x85", "\x9b", "\xa0",
    "\xad", "\u200b", "\u200e", "\u200f", "\u202a", "\u202e", "\u2028", "\u2029", "\u2066", "\u2069", "\ufeff",
    "\ufffd", "\uffff",
    # Letters that combine, change their length in another case, or are of another plane; and halves of such.
    "e\u0301", "\u00e9", "ß", "İ", "ﬁ", "漢", "\u0627", "🙂", "👩\u200d💻", "\U0010ffff", "\ud800", "\udfff", "\udcff",
)  # fmt: skip
_WHOLE = (
    "", " ", "  ", "\n", "\t", ".", "..", "...", "/", "//", "\\", "NUL", "CON", "null", "None", "true", "nan", "inf",
    "-0", "0", "1e309", "NaN", "undefined", "__proto__", "constructor", "toString", "__overflow__", "TOTAL", "Node",
    "node_name",
    # JSON, JavaScript, HTML.
    '"', '\\"', '","x":"', '"}', "]}", "\\u0022", "\\ud800", "{}", "[]", "</script>",
    "</script><script>alert(1)</script>", "<!--", "-->", "<![CDATA[", "]]>", "<img src=x onerror=alert(1)>",
    "javascript:alert(1)", "&lt;b&gt;", "&amp;", "&#0;", "<b>bold</b>", "</td></tr></table>", "</style>", "</title>",
    "'><svg onload=alert(1)>", "{{7*7}}", "{% raw %}", "${7*7}", "`${x}`", "<svg><style>", "</textarea>",
    "<a href='//x'>", "<!DOCTYPE html>", "<?php ?>", "&NewLine;", "\u2028alert(1)",
    # CSV and spreadsheets.
    "=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0", "\t=1", "\r=1", "\n=1", " =1", '"=1"', "'=1", "a,b", 'a"b',
    "a;b", 'a""b', "a\nb", "a\r\nb", "a\rb", ",", ",,", '""', "-2+3", '=HYPERLINK("x")', "\uff05", "\uff1d1", "+",
    "-", "=", "@",
    # Markdown.
    "|", "\\|", "a|b", "||", "|---|", "# h", "* a", "- a", "1. a", "> q", "```", "``", "`a`", "a`b`c", "[a](b)",
    "![a](b)", "<a@b.c>", "http://x.y", "www.x.y", "_a_", "**a**", "~~a~~", ":+1:", "@user", "#123", "$x$", "$$x$$",
    "  a", "a  ", "a\\", "\\", "\\n", "\\\\n", "a  \nb", "---", "===", "[^1]", "[ ]", "<details>", "==a==", "&copy;",
    "\\`", "a\\|b",
    # Prometheus, OpenTelemetry, logs, terminals, formats of Python and C, shells, files, SQL.
    'a",b="c', 'x"} 1\n', "\\\n", "# HELP x y", "# TYPE x counter", "# EOF", "le", "quantile", "a{b}", 'le="0.1"',
    "a\nb 1", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "\b\b\b", "a\x08b", "\r overwritten",
    "a\x1ac", "%s", "%n", "%(x)s", "{0}", "{x}", "{x!r}", "{", "}", "{{", "}}", "%d%d%d%n", "f'{x}'", "$(id)", "`id`",
    "; rm -rf", "&& id", "| id", "> f", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "C:\\x", "~", "~root",
    "-rf", "--help", "' OR 1=1 --", "'; DROP TABLE x; --", '"""', "'''", "\\'", "#!/bin/sh", "a=b;c=d", "a:b:c",
    "stack;frame", "a;b c 1", "MODULE:f",
    # Long ones, and ones whose writing turns or combines.
    "x" * 4096, "\u202eabc", "abc\u202d", "\u0301" * 50, "é" * 2048, "🙂" * 1024, "\ud800" * 1365, "a\n" * 2048,
    "|" * 4096, '"' * 4096, "<" * 4096, "\\" * 4096, "e\u0301", "\u00e9", "\u1100\u1161", "👩\u200d👩\u200d👧", "🇩🇪",
    "\u200bzero", "tag\U000e0041", "\ufeffbom", "nonchar\ufffe", "\ud83d\ude42", "\ude42\ud83d", "\udcff", "a\udc80b",
    "\ud800", "ﷺ" * 100, "\uff21", "\uff41" * 40, "a b" * 500,
)  # fmt: skip
_COUNT = 500


def _made() -> tuple[str, ...]:
    names = dict.fromkeys(_WHOLE)
    names |= dict.fromkeys(f"a{character}b" for character in _CHARACTERS)
    names |= dict.fromkeys(f"{character}b" for character in _CHARACTERS)
    shuffled = random.Random(8)
    while len(names) < _COUNT:
        names["".join(shuffled.choices(_CHARACTERS, k=shuffled.randint(2, 30)))] = None
    return tuple(names)[:_COUNT]


NAMES = _made()


def exported(name: str) -> str:
    """Return how a name leaves for Prometheus and OpenTelemetry."""
    return re.sub(f"[\ud800-\udfff{TURNING}]", lambda found: f"\\u{ord(found[0]):04x}", name)
