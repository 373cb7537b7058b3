# SPDX-License-Identifier: Apache-2.0
"""The walk runs what the tutorial says, in one shell, and sees what it does not say."""

import pytest

from deploy.dev import walk

TEXT = """# A tutorial

```sh build
false
```

```sh
word=hello
```

```sh
echo "$word 12.5 ms"
echo bye
```
```text
hello 3 us
bye
```

```sh clean-up
echo gone tutorial
```
"""


def test_steps_are_the_fences_in_their_order():
    steps = walk.steps_of(TEXT)
    assert [step.label for step in steps] == ["build", "", "", "clean-up"]
    assert steps[2].printed == "hello 3 us\nbye\n" and TEXT[slice(*steps[2].place)] == steps[2].printed


def test_the_repositorys_own_tutorial_can_be_read():
    steps = walk.steps_of(walk.TUTORIAL.read_text(encoding="utf-8"))
    commands = "".join(step.commands for step in steps)
    for word in ("validate", "plan", "up", "dig", "status", "hedgerow top", "/api/v1/page", "down"):
        assert word in commands
    assert steps[-1].label == "clean-up" and sum(step.printed is not None for step in steps) >= 6


def test_a_text_that_belongs_to_no_command_is_an_error():
    with pytest.raises(ValueError, match="belongs to no command"):
        walk.steps_of("```text\nlonely\n```\n")


def quiet(*_words, **_options):
    pass


def test_one_shell_runs_all_and_numbers_are_no_difference():
    wrong, outputs = walk.walk(TEXT, build=False, say=quiet)
    assert wrong == []
    assert list(outputs.values()) == ["hello 12.5 ms\nbye\n"]
    assert "hello 12.5 ms\nbye\n```" in walk.with_outputs(TEXT, outputs)


def test_a_line_that_was_not_said_is_found():
    wrong, _ = walk.walk(TEXT.replace("echo bye", "echo by"), build=False, say=quiet)
    assert len(wrong) == 1 and wrong[0].startswith("not said: bye")


def test_after_a_failure_only_the_clean_up_is_run():
    said = []
    wrong, _ = walk.walk(TEXT, build=True, say=lambda text, **_: said.append(text))
    assert len(wrong) == 1 and wrong[0].startswith("exit 1")
    assert "gone tutorial\n" in said and "hello" not in "".join(said)


def test_a_failure_in_the_midst_of_a_step_is_one():
    wrong, _ = walk.walk("```sh\nfalse\ntrue\n```\n", say=quiet)
    assert len(wrong) == 1


def test_another_tag_takes_the_tutorials_place_and_back():
    wrong, outputs = walk.walk("```sh\necho tutorial is $(echo tutorial | wc -c)\n```\n```text\ntutorial is 9\n```\n", tag="t12",
                               say=quiet)
    assert wrong == [] and list(outputs.values()) == ["tutorial is 4\n"]


def test_lines_are_looked_for_in_their_order():
    assert walk.missing_lines("a\nb\n", "b\na\nb\n") == []
    assert walk.missing_lines("a\nb\n", "b\na\n") == ["b"]
    assert walk.missing_lines("a\n...\nc\n", "a\nx\ny\nc\n") == []


def test_of_what_depends_on_the_machine_the_first_words_must_be_said():
    assert walk.missing_lines("requests 44: first 42\nreasons late 1\n", "requests 3: none\n\nreasons -\n", True) == []
    assert walk.missing_lines("requests 44\nreasons\n", "requests\n", True) == ["reasons"]
    assert walk.steps_of("```sh\na\n```\n```text like\nb\n```\n")[0].loosely


@pytest.mark.parametrize("one, other", [("p50 12.5 us, p99 1.2 ms", "p50 1 ms, p99 900 us"), ("up  since 3 s", "up since 12 min"),
                                        ("link 02:42:ac:11:00:02", "link 06:00:00:00:00:01"), ("100 %", "3.25 %")])
def test_what_differs_from_run_to_run_is_equal(one, other):
    assert walk.normal(one) == walk.normal(other)
