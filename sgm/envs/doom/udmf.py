"""UDMF, the text format of Doom maps: parsing of a TEXTMAP into blocks of fields, and formatting of values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from .lumps import shown

Block = dict[str, Any]
BLOCKS = 2**20  # largest number of blocks of a kind, up to 1000 bytes each: ten times those of large maps
WORD = 256  # largest number of characters of a key or a number
KINDS = ("vertex", "linedef", "sidedef", "sector", "thing")
# The tokens of UDMF. No pattern repeats a group, or searches for the end of a comment or a quoted text: a match that
# fails late would start again at the next character, or keep state for each character.
TOKEN = re.compile(r'//[^\n]*|/\*|"|[{}=;]|[^\s{}=;"/]+|/')
IDENTIFIER = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{WORD - 1}}}")
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 cannot encode
INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
FLAG, WHOLE, DECIMAL = (bool, np.bool_), (int, np.integer), (float, np.floating)  # types of values


def _tokens(text: str) -> Iterator[str]:
    """Yield the words, signs and quoted texts of a TEXTMAP, without its comments, in one pass."""
    at = 0
    while match := TOKEN.search(text, at):
        token, at = match[0], match.end()
        if token == '"':
            at = _end_of_quote(text, at)
            yield text[match.start() : at]
        elif token == "/*":
            if (end := text.find("*/", at)) < 0:
                raise ValueError("TEXTMAP has a comment without an end: expected */ after /*")
            at = end + 2
        elif not token.startswith("//"):
            if len(token) > WORD:
                raise ValueError(f"TEXTMAP has {shown(token)} of {len(token)} characters, expected at most {WORD}")
            yield token


def _end_of_quote(text: str, begin: int) -> int:
    """Return the end of the quoted text whose first character is at `begin`."""
    at = begin
    while (mark := text.find('"', at)) >= 0:
        piece, at = text[at:mark], mark + 1
        if (len(piece) - len(piece.rstrip("\\"))) % 2 == 0:  # after an odd number of backslashes, the quote is escaped
            return at
    raise ValueError(f"TEXTMAP has a quotation mark without a second one, before {shown(text[begin:])}")


def parse_udmf(text: str) -> tuple[str, dict[str, list[Block]]]:
    """Parse the namespace and the blocks, by kind, of a TEXTMAP; blocks of kinds not in KINDS are left out."""
    tokens = _tokens(text)

    def expect(wanted: str, after: str) -> str:
        found = next(tokens, "the end")
        if found not in wanted:
            raise ValueError(f"TEXTMAP has {shown(found)} after {shown(after)}, expected one of {wanted!r}")
        return found

    def name(word: str) -> str:
        if not IDENTIFIER.fullmatch(word):
            raise ValueError(f"TEXTMAP has {shown(word)}, expected a name of letters, digits and _ as in texturetop")
        return word.lower()

    def value(key: str) -> Any:
        read = _value(next(tokens, ""), key)
        expect(";", key)
        return read

    namespace = "ZDoom"
    blocks: dict[str, list[Block]] = {kind: [] for kind in KINDS}
    for word in tokens:
        sign, kind = expect("={", word), name(word)
        if sign == "=":
            given = value(kind)
            if kind == "namespace":
                if not isinstance(given, str):
                    raise ValueError(f"TEXTMAP has {shown(given)} for namespace, expected text in quotes")
                namespace = given
            continue
        block: Block = {}
        while (key := next(tokens, "the end")) != "}":
            expect("=", key)
            field = name(key)
            block[field] = value(field)
        if kind in blocks:
            if len(blocks[kind]) >= BLOCKS:
                raise ValueError(f"TEXTMAP has more than {BLOCKS} blocks {kind}, expected at most as many")
            blocks[kind].append(block)
    return namespace, blocks


def _value(token: str, key: str) -> Any:
    if token.startswith('"'):
        # A backslash escapes the next character, and is removed.
        return "\\".join(piece.replace("\\", "") for piece in token[1:-1].split("\\\\"))
    if token.lower() in ("true", "false"):
        return token.lower() == "true"
    number: int | float = math.nan
    if INTEGER.fullmatch(token):
        number = int(token, 16 if "x" in token.lower() else 10)
    elif NUMBER.fullmatch(token):
        number = float(token)
    if not is_number(number):
        raise ValueError(
            f"TEXTMAP has {shown(token)} for {key}, expected a number of at most 64 bits, true, false or text in quotes"
        )
    return number


def udmf_text(value: Any) -> str:
    """Format a value in UDMF."""
    if isinstance(value, str) and not SURROGATE.search(value):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, FLAG):
        return "true" if value else "false"
    if is_number(value):
        return repr(int(value) if isinstance(value, WHOLE) else float(value))
    raise ValueError(f"{shown(value)} is not a value of UDMF, expected a number of at most 64 bits, a bool or text")


def is_number(value: Any) -> bool:
    """Whether a value is a number that a TEXTMAP can hold: finite, and of at most 64 bits if it is an integer."""
    if isinstance(value, WHOLE) and not isinstance(value, bool):
        return -(2**63) <= int(value) < 2**63
    return isinstance(value, DECIMAL) and math.isfinite(value)
