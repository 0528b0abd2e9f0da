"""The frame of a page: it loads nothing, and runs its own script alone."""

import base64
import hashlib
import re

from ale_charts import document


def test_the_only_script_that_may_run_is_the_pages_own() -> None:
    made = "".join(document(title="t", body=["<main></main>"], script="all('p');"))
    (script,) = re.findall(r"<script>(.*?)</script>", made, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in made
    assert "default-src 'none'" in made
    assert script.endswith("all('p');")


def test_nothing_is_loaded_in_light_or_dark() -> None:
    made = "".join(document(title="t", body=[]))
    assert not re.search(r"https?://|@import|url\(|src=", made)
    assert "prefers-color-scheme: dark" in made
    assert 'name="viewport" content="width=device-width' in made


def test_title_and_first_link_are_escaped() -> None:
    made = "".join(document(title="a<b>&", body=[], skip=("runs", "to <i>")))
    assert "<title>a&lt;b&gt;&amp;</title>" in made
    assert '<a class="skip" href="#runs">to &lt;i&gt;</a>' in made


def test_rules_of_a_page_come_after_the_shared_ones() -> None:
    made = "".join(document(title="t", body=[], style=".plot { height: 1rem; }"))
    assert made.index(".plot { position") < made.index(".plot { height: 1rem; }")
