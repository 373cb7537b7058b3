# SPDX-License-Identifier: Apache-2.0
"""The runbook has every alert, in the words of its rule. HEDGEROW_REWRITE=1 writes the tables anew."""

import os
import re
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs" / "RUNBOOK.md"
RULES = PROJECT / "deploy" / "prometheus" / "hedgerow.rules.yml"
_MADE = re.compile(r"(?<=<!-- alerts -->\n).*?(?=<!-- /alerts -->)", re.DOTALL)
TITLES = {"hedgerow": "Of proxies", "hedgerow-node": "Of nodes", "hedgerow-steer": "Of groups (hedgerow steer)"}


def plain(template: str) -> str:
    """A rule's text without its templates: a label's name, and N for the value."""
    text = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", lambda label: label[1].upper(), template)
    return re.sub(r"\{\{ *\$value[^}]*\}\}", "N", text).replace("|", "\\|").strip()


def tables() -> str:
    made = []
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        made += [f"### {TITLES[group['name']]}", "", "| alert | severity | what it means, and what to do |", "|---|---|---|"]
        for rule in group["rules"]:
            if "alert" in rule:
                made.append(f"| `{rule['alert']}` | {rule['labels']['severity']} | {plain(rule['annotations']['description'])} |")
        made.append("")
    return "\n".join(made)


def test_every_alert_has_its_line():
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("HEDGEROW_REWRITE") == "1":
        PAGE.write_text(_MADE.sub(lambda _: tables(), page), encoding="utf-8")
        return
    assert _MADE.search(page)[0] == tables(), "run it with HEDGEROW_REWRITE=1"
