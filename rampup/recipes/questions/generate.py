"""Questions like those of the Quora set, made up: columns qid, question_text, target, with 6 % of
target 1.

    python -m rampup.recipes.questions.generate questions.csv --rows 40000

What makes a question insincere is its tone: many small signs, each of which also stands in honest
questions. No single word decides, so a rule of keywords stays poor, and a model that weighs all
words does well.
"""

import argparse
import csv
from pathlib import Path

import numpy as np


def _words(text: str) -> list[str]:
    return text.split()


POSITIVE = 0.06
COLUMNS = ("qid", "question_text", "target")
STARTS = [
    "why do",
    "how can",
    "what is",
    "is it true that",
    "when did",
    "who decides how",
    "should",
    "do you think",
]
TOPICS = _words("""
teachers engineers students doctors farmers tourists parents lawyers pilots nurses painters bakers sailors
voters drivers neighbours scientists programmers musicians athletes cities schools hospitals banks railways museums
libraries markets airports gardens bridges harbours computers phones laptops cameras engines batteries satellites
telescopes languages novels recipes films songs poems exams degrees salaries taxes loans visas passports contracts
budgets deadlines winters rivers mountains forests deserts islands storms earthquakes volcanoes planets stars galaxies
cats dogs horses birds bees whales tigers mathematics physics chemistry biology history geography economics philosophy
grammar algebra statistics football tennis chess cricket swimming cycling running yoga breakfast coffee bread rice
cheese chocolate vitamins sleep headaches allergies vaccines surgery startups investors customers managers interviews
careers internships pensions""")
VERBS = _words("""
learn choose compare improve measure explain prepare repair store collect plant build design translate
publish borrow rent sell export import recycle charge clean cook train visit cross predict calculate remember forget
organise finish delay avoid combine separate replace reduce increase protect insure register cancel renew apply
transfer invest save share""")
RELATIONS = _words("""
for with without before after during near between among about against beyond despite instead of in order to
compared to because of at the same time as more quickly than on the way to as part of in exchange for from within""")
QUALITIES = _words("""
new old cheap expensive small large local foreign online public private modern ancient simple complex
healthy efficient reliable common rare quiet popular technical practical formal annual early late average minimum
permanent temporary digital""")
SIGNS = _words("""
always never everyone nobody obviously clearly admit pretend refuse deserve blame ruin hate destroy lie cheat
steal whine complain brag stupid lazy greedy arrogant ignorant pathetic useless disgusting fake corrupt evil weak
jealous hopeless hysterical spoiled shameless cowardly ridiculous crazy dumb liars idiots fools losers frauds crooks
cowards parasites hypocrites traitors sheep propaganda conspiracy agenda brainwashed obsessed entitled inferior
superior""")
OTHERS = [*TOPICS, *VERBS, *RELATIONS * 4, *QUALITIES * 2]
SHORTEST, LONGEST = 7, 18
"""Words after the start."""
HONEST_RATE, INSINCERE_RATE = 0.07, 0.48
"""How many of the words that carry meaning are signs."""


def questions(rows: int, seed: int) -> tuple[list[str], list[int]]:
    """Texts and targets, the same for the same seed."""
    numbers = np.random.Generator(np.random.Philox(seed))
    targets = numbers.random(rows) < POSITIVE
    lengths = numbers.integers(SHORTEST, LONGEST + 1, rows)
    signs = (
        numbers.random((rows, LONGEST)) < np.where(targets, INSINCERE_RATE, HONEST_RATE)[:, None]
    )
    words = np.where(signs, numbers.choice(SIGNS, signs.shape), numbers.choice(OTHERS, signs.shape))
    starts = numbers.choice(STARTS, rows)
    texts = [
        f"{start} {' '.join(row[:length])}?".capitalize()
        for start, row, length in zip(starts, words.tolist(), lengths, strict=True)
    ]
    return texts, targets.astype(int).tolist()


def write(path: Path, rows: int, seed: int) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for index, (text, target) in enumerate(zip(*questions(rows, seed), strict=True)):
            writer.writerow((f"{seed:04x}{index:016x}", text, target))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Write made-up questions in the layout of the Quora set."
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write(options.file, options.rows, options.seed)
