"""The contents of rules as text, for the books and for messages. Pure."""

import json
from typing import Final

from gateway.base.values import SettingError
from gateway.rules.history import Content

CHARS_MAX: Final = 1 << 20  # of one rule
DEPTH_MAX: Final = 20


def to_text(content: Content) -> str:
    """Return a rule's content as JSON. SettingError says why it can't be."""
    if _depth(content) > DEPTH_MAX:
        raise SettingError("tables and lists are nested too deeply")
    try:
        text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError):
        raise SettingError(
            "a rule must consist of texts, finite numbers, lists and tables"
        ) from None
    if len(text) > CHARS_MAX:
        raise SettingError(f"a rule may have {CHARS_MAX:,} characters at most")
    return text


def _depth(content: Content, at: int = 0) -> int:
    if at > DEPTH_MAX or not isinstance(content, dict | list):
        return at
    below = content.values() if isinstance(content, dict) else content
    return max((_depth(each, at + 1) for each in below), default=at)


def from_text(text: str) -> Content:
    """Return the content of a rule from the books."""
    return json.loads(text)
