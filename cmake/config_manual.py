#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The manual page of a configuration file, of the tables of keys in its pages of docs/: config_manual.py PAGE PACKAGE VERSION DOCUMENT..."""

import re
import sys
from pathlib import Path


def roff(markdown: str) -> str:
    """Without references to other pages, which a reader of man(1) cannot follow."""
    text = re.sub(r" ?\((?:see )?\[[^]]*\]\([^)]*\)\)|(?:[;:,] )?\[below\]\([^)]*\)", "", markdown)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return "\\&" + text if text.startswith((".", "'")) else text


def entry(key: str, default: str, takes: str, meaning: str) -> str:
    facts = roff("; ".join(filter(None, [takes, "required" if default == "required" else default and f"default {default}"])))
    return f".TP\n.B {roff(key)}\n" + (f"{facts}.\n.br\n" if facts else "") + f"{roff(meaning)}.\n"


def main() -> None:
    page, package, version, *documents = sys.argv[1:]
    table = [row for document in documents
             for row in Path(document).read_text(encoding="utf-8").split("\n| key | default | ", 1)[1].split("\n\n", 1)[0].splitlines()[2:]]
    program = "hedgerowd" if package == "hedgerow" else package
    sys.stdout.write(
        f'.TH {roff(page.upper())} 5 "" "hedgerow {roff(version)}" "Hedgerow"\n.SH NAME\n{page} \\- configuration of {roff(program)}\n'
        f".SH SYNOPSIS\n.B {roff(f'/etc/{package}/{page}')}\n.SH DESCRIPTION\n"
        f"{roff(f'YAML. /usr/share/doc/{package}/examples/{page} is a file to begin with; {package} validate --config FILE checks one.')}\n"
        "Durations have a unit (10ms, 1.5s), percentages their sign (5%), addresses are numeric. [] marks a list.\n.SH KEYS\n")
    sys.stdout.writelines(entry(*(cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:5])) for row in table)
    sys.stdout.write(f".SH SEE ALSO\n.BR {roff(program)} (8)\n")


if __name__ == "__main__":
    main()
