"""The commands of every task on whatever is typed or lies on the disk: one line that begins with `saccade:`, code 2, nothing written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support import check_mistake, run_cli, split_words

LONG = "a" * 300
# words after `saccade`, and what the sentence contains; all paths lie in one folder, see `desk`
ROWS: list[tuple[str, str]] = [
    # no argument, no model, a model of another kind
    ("classify", "Missing argument 'model'"),
    ("tag labels", "Missing argument 'file'"),
    ("generate", "Missing argument 'model'"),
    ("average --out x", "Missing argument 'models'"),
    ("average run", "Missing option '--out'"),
    ("compare", "Missing argument"),
    ("classify nowhere x", "no model folder at nowhere; give the path of a folder written by `saccade train`"),
    ("tag nowhere words.conllu", "no model folder at nowhere"),
    ("generate nowhere x", "no model folder at nowhere"),
    (f"generate {LONG} x", "no model folder at aaa"),
    ("average nowhere --out new", "no model folder at nowhere"),
    ("translate run x --with nowhere", "no model folder at nowhere"),
    ("classify text.txt x", "text.txt is a file, not a model folder"),
    ("classify empty x", "empty is not an intact model folder: it has no manifest.json"),
    ("classify run good", "a translation model cannot label a text; use `saccade translate MODEL"),
    ("classify tags zebra", "a tagging model cannot label a text"),
    ("translate labels zebra", "a classification model cannot translate"),
    ("show tags zebra --out x.png", "the family rnn-encoder has no attention to show"),
    ("show labels zebra --out x.png --site pol", "no attention named 'pol'; did you mean 'pool'? (of pool, encoder.0.mixer)"),
    ("tag labels words.conllu", "a classification model cannot tag words; use `saccade classify MODEL"),
    ("generate labels good", "a classification model cannot continue a text; use `saccade classify MODEL"),
    ("generate run the", "a translation model cannot continue a text"),
    ("generate masked the", "a model with the masked objective cannot continue a text; use one with language.objective=causal"),
    ("translate labels good", "a classification model cannot translate; use `saccade classify MODEL"),
    ("translate words the", "a language-modelling model cannot translate; use `saccade generate MODEL"),
    ("translate tags the", "a tagging model cannot translate; use `saccade tag MODEL"),
    ("translate run the --with labels", "a classification model cannot be ensembled (no token-by-token output)"),
    ("translate run the --with letters", "model 2 (transformer-decoder) has a different vocabulary than the first (bahdanau)"),
    ("translate labels good --with labels", "a classification model cannot be ensembled (no token-by-token output)"),
    ("show tags the --out x.png", "the family rnn-encoder has no attention to show"),
    ("show labels good --out x.png --target bad", "a classification model generates no text; leave the target out"),
    ("classify labels good --device tpu", "no device named 'tpu'"),
    # texts
    ("classify labels good --effect", "'good' has 1 word, and an effect is seen by leaving one out; give two or more"),
    ("classify labels --input two.txt --effect", "lines are printed without weights; leave --effect out, or use --json"),
    ("classify labels --input two.txt --words", "lines are printed without weights; leave --words out, or use --json"),
    ("classify labels ''", "the text is empty; give a sentence"),
    ("classify labels", "stdin is empty; give at least one line"),
    ("classify labels good --input text.txt", "both a text and --input were given"),
    ("classify labels --input nowhere.txt", "no file 'nowhere.txt'"),
    ("classify labels --input empty.txt", "empty.txt is empty; it needs at least one line"),
    ("classify labels --input latin.txt", "latin.txt, line 2: not UTF-8"),
    ("classify labels '\udcff'", "the text, line 1: not UTF-8 (byte 0xff); convert it first"),
    ("classify labels good --out x.bmp", "cannot write answers into 'x.bmp'"),
    ("classify labels --input two.txt --out x.png", "pictures and pages are drawn by `saccade show`"),
    ("generate words '\udcff'", "half of a surrogate pair"),
    ("tag tags nowhere.conllu", "no file 'nowhere.conllu'"),
    ("tag tags empty", "empty is a folder, not a file"),
    ("tag tags empty.conllu", "empty.conllu is empty"),
    ("tag tags broken.conllu", "broken.conllu, line 2: 3 columns instead of 10"),
    ("tag tags blank.txt --split letters", "--split is 'letters'; write space or words"),
    ("tag tags broken.conllu --split words", "--split is 'words'; write space or words, for a .txt file"),
    ("tag words blank.txt", "a language-modelling model cannot tag words; use `saccade generate"),
    ("tag tags latin.txt", "latin.txt, line 2: not UTF-8"),
    ("tag tags odd.xml", "does not end in .conllu, .tsv, .jsonl, .txt"),
    ("tag tags -", "stdin is empty; give at least one line"),
    # numbers
    ("generate words the --limit 0", "the limit is 0, expected 1 to 1,000,000"),
    ("generate words the --limit 1000001", "the limit is 1000001, expected"),
    ("generate words the --limit -5", "the limit is -5, expected 1 to 1,000,000"),
    ("generate words the --limit many", "Invalid value for '--limit'"),
    ("generate words the --temperature -1", "temperature is -1.0"),
    ("generate words the --temperature nan", "temperature is nan"),
    ("generate words the --temperature inf", "temperature is inf"),
    ("generate words the --top-k 0", "top_k is 0; give at least 1, or leave it out"),
    ("generate words the --top-p 0", "top_p is 0.0"),
    ("generate words the --seed -1", "the seed is -1"),
    ("generate words the --seed 99999999999999999999", "the seed is 99999999999999999999"),
    ("evaluate words text.txt --stride 9", "a stride of 9; give 1 to 8, the tokens the model reads at once"),
    ("evaluate words text.txt --stride 99999999999999999999", "a stride of 99999999999999999999"),
    ("evaluate words text.txt --stride -1", "Invalid value for '--stride'"),
    ("evaluate lines text.txt --stride 2", "a sliding window needs a causal model of one long text; leave out --stride"),
    ("evaluate masked text.txt --stride 2", "a sliding window needs a causal model of one long text"),
    # an option that the task does not have
    ("evaluate labels reviews.tsv --beam 3", "an evaluation of classification has no option 'beam'; leave it out"),
    ("evaluate tags words.conllu --lengths", "an evaluation of tagging has no option 'lengths'; leave it out"),
    ("evaluate words text.txt --moses de", "an evaluation of language-modelling has no option 'moses'"),
    ("evaluate run phrasebook:test --stride 3", "an evaluation of translation has no option 'stride'"),
    ("evaluate run phrasebook:test --moses German", "'German' is not a language with Moses tokens"),
    ("evaluate run phrasebook:test --peer nobody", "--peer is 'nobody'; write NAME:METRIC=VALUE@SOURCE, such as nanoGPT:val_loss=1.4697@"),
    ("evaluate run phrasebook:test --peer a:b=many@c", "--peer is 'a:b=many@c'"),
    ("evaluate run phrasebook:test --peer a:b=nan@c", "--peer is 'a:b=nan@c'"),
    ("evaluate run phrasebook:test --peer :b=1@c", "--peer is ':b=1@c'"),
    ("evaluate run phrasebook:test --peer a:b=1", "--peer is 'a:b=1'; write NAME:METRIC=VALUE@SOURCE"),
    ("evaluate run phrasebook:test --result NO", "'NO' cannot name a result; use lowercase letters"),
    ("evaluate run phrasebook:test --result ../x", "'../x' cannot name a result"),
    # data of another kind
    ("evaluate labels nowhere.tsv", "no file 'nowhere.tsv'"),
    ("evaluate labels strange.tsv", "line 2: the label 'godo' was never seen in training; did you mean 'good'?"),
    ("evaluate labels broken.tsv", "broken.tsv, line 2: 1 column instead of 2; a line is text<TAB>label"),
    ("evaluate labels bare.jsonl", "bare.jsonl, line 1 has no label; give every text one to compare with, or use `classify`"),
    ("evaluate labels words.conllu", "words.conllu holds sentences with tags, not texts with labels"),
    ("evaluate labels phrasebook:test", "the corpus 'phrasebook' has no texts with labels"),
    ("evaluate tags two.txt", "two.txt, line 1 has no tag; give every word one to compare with, or use `tag`"),
    ("evaluate tags broken.conllu", "broken.conllu, line 2: 3 columns instead of 10"),
    ("evaluate tags strange.tsv", "was never seen in training"),
    ("evaluate tags reviews:test", "the corpus 'reviews' has no sentences with tags"),
    ("evaluate words empty.txt", "empty.txt is empty"),
    ("evaluate words white.txt", "white.txt holds no documents; add at least one"),
    ("evaluate letters one.txt", "the text has fewer than two tokens; give more text"),
    ("evaluate run reviews:test", "the corpus 'reviews' has no pairs"),
    ("evaluate run phrasebook:test --with nowhere", "no model folder at nowhere"),
    ("evaluate run phrasebook:test --with labels", "a classification model cannot be ensembled (no token-by-token output)"),
    ("evaluate labels reviews.tsv --with labels", "a classification model cannot be ensembled (no token-by-token output)"),
    ("evaluate run phrasebook:test --with letters", "model 2 (transformer-decoder) has a different vocabulary than the first (bahdanau)"),
    ("evaluate words text.txt --with letters", "model 2 (transformer-decoder) has a different vocabulary than the first"),
    # several models
    ("average run fixed --out new", "fixed is a different model than run; average models of one shape and vocabulary"),
    ("average run labels --out new", "labels is a different model than run"),
    ("average run --out empty", "empty already exists; choose a new folder with --out"),
    ("average run --out text.txt", "text.txt already exists"),
    ("average run --out text.txt/deep", "cannot write text.txt/deep"),
    (f"average run --out {LONG}", "File name too long"),
    ("average run --out .", ". already exists"),
    ("compare classification data.train=same.tsv", "classification leaves open how long it trains, so a comparison would not be fair; set"),
    # comparisons
    ("compare nowhere.yaml", "no recipe file 'nowhere.yaml'"),
    ("compare a=b", "no recipe was named; write saccade compare RECIPE RECIPE"),
    ("compare labels.yaml sub/labels.yaml", "two of these recipes have the same name; rename one of the files"),
    ("compare labels.yaml tags.yaml", "these recipes have different tasks; compare recipes of one task"),
    ("compare labels.yaml --beam 3", "an evaluation of classification has no option 'beam'"),
    ("compare labels.yaml --seeds 0", "Invalid value for '--seeds'"),
    ("compare labels.yaml --data nowhere.tsv", "no file 'nowhere.tsv'"),
    ("compare labels.yaml --result NO", "'NO' cannot name a result"),
    ("compare labels.yaml --peer x", "--peer is 'x'"),
    ("compare labels.yaml training.updatse=3", "no setting named 'training.updatse'"),
    ("compare labels.yaml data.test=nowhere.tsv", "no file 'nowhere.tsv'"),
    ("compare words.yaml --vary model.dim", "--vary is 'model.dim'; write a key and several values, such as model.score=dot,additive"),
    ("compare words.yaml --vary model.score=dot,adative", "no score named 'adative'; did you mean 'additive'?"),
    ("compare words.yaml --vary model.scroe=dot,additive", "no setting named 'model.scroe' for transformer-decoder; did you mean 'score'?"),
    ("compare words.yaml --vary model.dim=8,0", "model.dim is 0; it must lie between 1 and 65,536"),
    ("compare words.yaml --vary model.mask=full,{name:window", "} is missing at the end; close what was opened"),
    ("compare words.yaml model.dim=4 --vary model.dim=8,16", "model.dim is given twice; vary it by one --vary"),
    ("compare words.yaml --vary training.updates=4,4.0", "updates=4.0 is the same recipe as another row"),
    ("compare words.yaml --vary task=tagging,language-modelling", "has no effect here"),
    ("compare words.yaml --ensemble", "an ensemble of one model; give several recipes or seeds"),
    ("compare labels.yaml --seeds 2 --ensemble", "a classification model cannot be ensembled (no token-by-token output)"),
    ("compare words.yaml --vary vocabulary.min_count=1,2 --ensemble", "min_count=1 and min_count=2 have a different vocabulary.min_count"),
    ("compare words.yaml --vary data.train=text.txt,two.txt --ensemble", "have a different data.train, so that an ensemble would mix"),
    ("compare sub/ensemble.yaml words.yaml --ensemble", "a recipe is called 'ensemble', as the row of the ensemble; rename its file"),
    # recipes of the tasks
    ("train labels.yaml task=clasification", "task is 'clasification'; did you mean 'classification'?"),
    ("train labels.yaml training.watch=bleu", "training.watch is 'bleu'"),
    ('train labels.yaml model={"family":"bahdanau"} --out new', "model.family is 'bahdanau', which is not an encoder; choose one of: "),
    ("train labels.yaml model.pool=mena", "no pool named 'mena'; did you mean 'mean'?"),
    ("train labels.yaml data.train=same.tsv --out new", "the training data has only 'good' as label"),
    ("train labels.yaml data.train=bare.jsonl --out new", "line 1 of the training data has no label; give every text one"),
    ("train labels.yaml data.dev=bare.jsonl --out new", "line 1 of the dev data has no label"),
    ("train labels.yaml data.dev=strange.tsv data.strict=true --out new", "line 2: the label 'godo' was never seen in training"),
    ("train started.yaml start_from=nowhere --out new", "no model folder at nowhere"),
    ("train started.yaml start_from=words --out new", "has no encoder or decoder for this model; choose a model.family"),
    ("train started.yaml start_from=masked model.hidden=16 --out new", "use the same model.dim, hidden, heads … as that model"),
    ("train tags.yaml data.dev=two.txt --out new", "line 1 of the dev data has no tag; give every word one"),
    ("train tags.yaml data.column=lemma", "data.column is 'lemma'"),
    ("train words.yaml language.objective=cuasal", "no objective named 'cuasal'; did you mean 'causal'?"),
    ("train cut.yaml language.objective=denoising --out new", "'transformer-decoder', which is not an encoder–decoder; choose one of: "),
    ("train words.yaml language.block=1", "language.block is 1; it must lie between 2 and 1,000,000"),
    ("train words.yaml language.share=1", "language.share is 1.0; it must lie between 0.01 and 0.9"),
    ("train words.yaml data.documents=page", "data.documents is 'page'"),
    ("train words.yaml data.train=white.txt --out new", "white.txt holds no documents"),
    ("train words.yaml data.dev=one.txt --out new", "the text has fewer than two tokens; give more text"),
    ("train words.yaml training.average=-1", "training.average is -1"),
]  # fmt: skip


@pytest.fixture(scope="module")
def desk(shelf: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models of every task and files, good and bad."""
    root = tmp_path_factory.mktemp("desk")
    for name in ("labels", "tags", "words", "letters", "lines", "masked", "run"):
        shutil.copytree(shelf / name, root / name)
    shutil.copytree(models / "fixed", root / "fixed")
    for name in ("reviews.tsv", "words.conllu", "text.txt"):
        shutil.copy(shelf / name, root / name)
    (root / "empty").mkdir()
    (root / "sub").mkdir()
    # each recipe complete, and two without the section that a row's other settings make useless
    for name, source, left_out in (
        *((name, name, ()) for name in ("labels", "tags", "words")),
        ("started", "labels", ("vocabulary",)),
        ("cut", "words", ("language",)),
    ):
        values = json.loads((shelf / source / "recipe.json").read_text())
        kept = {key: value for key, value in values.items() if key not in ("saccade", *left_out)}
        (root / f"{name}.yaml").write_text(json.dumps(kept))
    shutil.copy(root / "labels.yaml", root / "sub" / "labels.yaml")
    shutil.copy(root / "words.yaml", root / "sub" / "ensemble.yaml")
    texts = {
        "empty.txt": "",
        "empty.conllu": "",
        "one.txt": "t",
        "white.txt": " \n\n",
        "two.txt": "the cat\nthe dog\n",
        "blank.txt": "the cat\n\nthe dog\n",
        "broken.conllu": "# text = x\n1\tthe\tDET\n\n",
        "broken.tsv": "a film\tgood\nno tab\n",
        "strange.tsv": "a film\tgood\nfun\tgodo\n",
        "same.tsv": "a film\tgood\nfun\tgood\n",
        "bare.jsonl": '{"text": "a film"}\n',
        "odd.xml": "<x/>\n",
    }
    for name, text in texts.items():
        (root / name).write_text(text)
    (root / "latin.txt").write_bytes(b"the cat\ncaf\xe9\n")
    return root


@pytest.mark.parametrize(
    ("line", "sentence"),
    ROWS,
    ids=[
        f"{n}-{line[:50]}".encode("ascii", "replace").decode() for n, (line, _) in enumerate(ROWS)
    ],
)
def test_a_mistake_is_one_line_and_costs_nothing(
    desk: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    if "German" in line:
        pytest.importorskip("sacremoses")
    monkeypatch.chdir(desk)
    check_mistake(desk, line, sentence)


@pytest.mark.parametrize("line", ["classify labels", "tag tags -"])
def test_lines_of_nothing_on_stdin_are_reported(
    desk: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(desk)
    printed = run_cli(*split_words(line), stdin="\n  \n")
    assert (printed.code, printed.out) == (2, "")
    [error] = printed.err.splitlines()
    assert error in (
        "saccade: the lines are empty; give at least one text",
        "saccade: stdin contains no words; give at least one sentence",
    )


def test_a_tagger_does_not_wait_for_a_person_at_a_terminal(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk)
    waiting = run_cli("tag", "tags", "-", terminal=True)
    assert (waiting.code, waiting.out) == (2, "")
    assert waiting.err.startswith("saccade: nothing to tag; give a text file")


def test_json_changes_nothing_about_mistakes(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    for line in (
        "classify run x",
        "tag labels words.conllu",
        "generate masked x",
        "average run fixed --out n",
        "compare a=b",
    ):
        plain, machine = run_cli(*split_words(line)), run_cli(*split_words(line), "--json")
        assert (plain.code, plain.err, plain.out) == (machine.code, machine.err, machine.out)
