"""The vocabulary, and the pairs of its words that are held out from training."""

# Short common nouns; none is part of another, so that `grep` and `sed` find whole words only.
# The order is part of every task: append new words at the end.
VOCABULARY: tuple[str, ...] = tuple(
    """
key knife jar barn grass horse fork coin mask fig ring doll cave rope pond wagon jet kite owl
coat plum bone card egg ship toy cliff seed moon bag camp bell shoe glass star oven vase lake
fox bean oak ant log gold ink cork salt king cake cup duck cart rug elk desk milk nose sand
queen chair wolf root bread ball brick lamp hen yard bike hawk gem bed book crow rose iron nest
boat hill pine hat dog bus seal crab silk door cloud leaf fire horn hand drum pen reed goat fish
sock jam soap flute knee wood clay glove pan bank bird dust box foot hook nail lion fern flag
moth leg tree pig rain lemon hut zebra cow pear nut bear
""".split()  # noqa: SIM905 - as a list it would take 128 lines
)
FEWEST = 48
"""A vocabulary of fewer words is too small for a task of ten commands."""

_INDEX = {word: i for i, word in enumerate(VOCABULARY)}
_CLASSES = 8
_APART = (1, _CLASSES - 1)


def held_out_pair(one: str, other: str) -> bool:
    """Whether the unordered pair of words is held out from the steps of training.

    The words are assigned in turn to eight classes in a circle, and pairs of adjacent classes
    are held out: a quarter of all pairs, and for every word a quarter of its partners. It depends
    on nothing else, so that tasks of any seed, count and size of vocabulary agree on it.
    """
    return (_INDEX[one] - _INDEX[other]) % _CLASSES in _APART
