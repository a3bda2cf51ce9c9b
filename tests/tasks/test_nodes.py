"""Labels of nodes: graphs in files and generated, batches, partial labels, and models that learn from neighbors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import raises

from saccade import api, cli
from saccade.config import recipes
from saccade.data import corpora
from saccade.data.generated.graph_corpora import CLUB, graphs, karate
from saccade.data.node_graphs import Graph
from saccade.errors import SaccadeError
from saccade.tasks.label_task import UNLABELED
from saccade.tasks.nodes import Nodes
from saccade.training.loop import Watcher
from saccade.training.optimizer import parameter_groups

SMALL = {
    "dim": 16,
    "hidden": 16,
    "depth": 2,
    "heads": 2,
    "dropout": 0.0,
    "position_embedding": "none",
    "family": "transformer-encoder",
}
TINY = Graph(("red", "blue", "red"), ("a", None, "b"), ((0, 1, "friend"), (1, 2, "rival")), 1)


def recipe(
    train: str = "graphs:train",
    dev: str = "graphs:dev",
    updates: int = 60,
    sizes: Any = None,
    **model: Any,
) -> recipes.Recipe:
    training = {
        "updates": updates,
        "tokens": 500,
        "learning_rate": 0.01,
        "warmup": 5,
        "smoothing": 0.0,
        "threads": 1,
        "watch": "accuracy",
    }
    data = {"train": train, "dev": dev} | (
        {} if sizes is None else {train.partition(":")[0]: sizes}
    )
    small = {} if "family" in model else SMALL
    chosen = {"model": {**small, **model}, "training": {**training, "evaluate_every": updates}}
    return recipes.recipe(
        {"task": "node-classification", "data": data, "vocabulary": {"kind": "words"}, **chosen}
    )


def fitted(made: recipes.Recipe, out: Path) -> float:
    return float(api.fit(made, out, watcher=Watcher())[0].evaluate("dev")["accuracy"])


def test_the_karate_club_is_the_published_one() -> None:
    networkx = pytest.importorskip("networkx")
    theirs = networkx.karate_club_graph()
    [[whole]] = [part for part in karate(train=34, dev=0, test=0).values() if part]
    assert {(i, j) for i, j, _ in whole.edges} == {(min(edge), max(edge)) for edge in theirs.edges}
    assert len(CLUB["ties"]) == 78
    assert list(whole.labels) == [theirs.nodes[n]["club"] for n in range(34)]


def test_parts_of_the_karate_club_know_different_members() -> None:
    parts = karate()
    known = {
        name: {n for n, one in enumerate(part[0].labels) if one} for name, part in parts.items()
    }
    assert known["train"] == {0, 33}, "the teacher and the president"
    assert sum(map(len, known.values())) == len(set.union(*known.values())) == 34
    assert karate(4, 0, 0, seed=1)["train"] != karate(4, 0, 0)["train"]
    with raises("out-of-range", match=r"train=30, dev=10, test=22, but 'karate' has 34 members"):
        karate(train=30)


def test_generated_graphs_say_more_along_edges_than_at_nodes() -> None:
    every = graphs(train=0, dev=0, test=200)["test"]
    pairs = [(one.labels[i] == one.labels[j], kind) for one in every for i, j, kind in one.edges]
    friends = [same for same, kind in pairs if kind == "friend"]
    rivals = [same for same, kind in pairs if kind == "rival"]
    assert sum(friends) / len(friends) > 0.8
    assert sum(rivals) / len(rivals) < 0.2
    shown = [
        word == label for one in every for word, label in zip(one.words, one.labels, strict=True)
    ]
    assert 0.57 < sum(shown) / len(shown) < 0.68


def test_a_graph_in_numbers() -> None:
    task = Nodes.learn(recipe(), [TINY])
    [one] = task.numbers([TINY])
    assert one.labels == [0, UNLABELED, 1]
    assert one.rows[1].values.tolist() == [[1, 2, 0], [2, 1, 3], [0, 3, 1]], (
        "1 for itself, then the kinds by name, 0 for none"
    )
    strange = Graph(("green",), ("a",), (), 2)
    batch = task.batch(task.numbers([TINY, strange]), torch.device("cpu"))
    tokens, lengths, edges = batch.inputs
    assert (tokens.shape, lengths.tolist(), batch.tokens) == ((2, 3), [3, 1], 3)
    assert edges[1].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    other = Graph(("red", "red"), ("a", "b"), ((0, 1, "stranger"),), 3)
    assert int(task.numbers([other])[0].rows[1].values[0, 1]) == 4, (
        "an edge of a kind never seen is an edge"
    )
    assert Nodes.restore(recipe(), json.loads(json.dumps(task.tokens()))).kinds == task.kinds
    with raises("unknown-label", match="line 4: the label 'c' was never seen in training"):
        task.numbers([Graph(("red",), ("c",), (), 4)])


def test_the_order_of_nodes_does_not_matter_and_padding_is_invisible() -> None:
    made = recipe(mixer="graph-attention", position={"name": "edges", "kinds": 4})
    examples = graphs(train=30, dev=0, test=0)["train"]
    system = api.build(made, examples)
    model = system.model.double().eval()
    one, long = examples[0], max(examples, key=lambda each: len(each.words))
    order = torch.randperm(len(one.words)).tolist()
    back = {node: n for n, node in enumerate(order)}
    pick = lambda values: tuple(values[n] for n in order)
    moved = Graph(
        pick(one.words),
        pick(one.labels),
        tuple((back[i], back[j], kind) for i, j, kind in one.edges),
        1,
    )
    batch = system.task.batch(system.task.numbers([one, moved, long]), torch.device("cpu"))
    found = model(*batch.inputs)
    torch.testing.assert_close(found[1, : len(order)], found[0, order], rtol=0, atol=1e-12)
    alone = model(*system.task.batch(system.task.numbers([one]), torch.device("cpu")).inputs)
    torch.testing.assert_close(alone[0], found[0, : len(order)])


@pytest.mark.parametrize("layer", ["attention", "convolution"])
def test_a_graph_network_reads_bags_of_words_along_edges(layer: str) -> None:
    """dropout-free, float64: the first layer's X W is the mean of the words' vectors, and nodes may come in any order."""
    made = recipe(family="graph-network", layer=layer, hidden=16, depth=2)
    one = Graph(
        ("red tall", "blue", "red", "red tall thin"),
        ("a", "b", None, "a"),
        ((0, 1, "linked"), (1, 3, "linked")),
        1,
    )
    moved = Graph(
        ("red tall thin", "red", "blue", "tall red"),
        ("a", None, "b", "a"),
        ((3, 2, "linked"), (2, 0, "linked")),
        2,
    )
    longer = Graph(one.words * 2, one.labels * 2, one.edges, 3)
    system = api.build(made, [one, moved, longer])
    model = system.model.double().eval()
    tokens, lengths, edges = system.task.batch(
        system.task.numbers([one, moved, longer]), torch.device("cpu")
    ).inputs
    assert tokens[0, 0].tolist() == [*system.task.text.encode_ids(["red tall"])[0], 0]
    vectors = model.readers[0].weight
    torch.testing.assert_close(
        model.readers[0](tokens[0])[0], (vectors[tokens[0, 0, 0]] + vectors[tokens[0, 0, 1]]) / 2
    )
    found = model(tokens, lengths, edges)
    torch.testing.assert_close(found[1, :4], found[0, [3, 2, 1, 0]], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[2, :4], found[0, :4], rtol=0, atol=1e-12)
    alone = model(*system.task.batch(system.task.numbers([one]), torch.device("cpu")).inputs)
    torch.testing.assert_close(alone[0], found[0, :4], rtol=0, atol=1e-12)


def test_the_control_of_a_graph_network_reads_each_node_alone() -> None:
    one = Graph(("red tall", "blue"), ("a", "b"), ((0, 1, "linked"),), 1)
    apart = Graph(one.words, one.labels, (), 1)
    for layer, alike in {"none": True, "convolution": False}.items():
        system = api.build(recipe(family="graph-network", layer=layer, hidden=8), [one])
        model = system.model.eval()
        found = [
            model(*system.task.batch(system.task.numbers([each]), torch.device("cpu")).inputs)
            for each in (one, apart)
        ]
        assert torch.equal(*found) == alike


def test_weight_decay_may_act_on_the_first_layer_alone() -> None:
    for decay, shapes in {"first": [(8, 2)], "all": []}.items():
        model = api.build(
            recipe(family="graph-network", layer="convolution", hidden=8, decay=decay), [TINY]
        ).model
        spared = parameter_groups(model)[1:]
        assert [tuple(one.shape) for group in spared for one in group["params"]] == shapes


def write_tables(folder: Path) -> str:
    """A ring of 20 papers, whose field is that of the words of both neighbors."""
    rows = [
        f"p{n}\t{('train', 'dev', 'test', '')[n % 4]}\t{'AB'[n // 10]}\t{'x y' if n < 10 else 'z'}"
        for n in range(20)
    ]
    (folder / "nodes.tsv").write_text("node\tsplit\tlabel\twords\n" + "\n".join(rows) + "\n")
    (folder / "edges.tsv").write_text(
        "a\tb\n" + "".join(f"p{n}\tp{(n + 1) % 20}\n" for n in range(20))
    )
    return f"{folder / 'nodes.tsv'},{folder / 'edges.tsv'}"


def test_a_graph_in_two_tables_is_trained_on_and_evaluated_by_its_splits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where, out = write_tables(tmp_path), tmp_path / "run"
    [one] = corpora.read(corpora.GRAPHS, f"{where}#dev")
    assert (one.words[0], one.words[19], one.edges[19]) == ("x y", "z", (19, 0, "linked"))
    assert [n for n, label in enumerate(one.labels) if label] == [1, 5, 9, 13, 17]
    assert None not in corpora.read(corpora.GRAPHS, where)[0].labels
    data = [f"data.{part}={where}#{part}" for part in ("train", "dev", "test")]
    words = [*data, "training.updates=20", "training.threads=1", "--out", str(out)]
    assert cli.run(["train", "cora-gcn", *words]) == 0
    assert cli.run(["evaluate", str(out), f"{where}#test", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["nodes"] == 5


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        (
            "nodes.tsv",
            "node\twords\nq\tx\n",
            "no column 'label'; the first line names the columns node, label, words",
        ),
        (
            "nodes.tsv",
            "node\tlabel\twords\nq\tx\n",
            "line 2: 2 cells and 3 columns; write a tab between two cells",
        ),
        (
            "nodes.tsv",
            "node\tlabel\twords\nq\ta\tx\nq\tb\tx\n",
            "line 3: the node 'q' is there twice; give each node one line",
        ),
        (
            "edges.tsv",
            "a\tb\np1\tp77\n",
            "line 2: 'p77' is not a node of .*nodes.tsv; write the names of its column node",
        ),
        (
            "",
            "",
            "no node of .*nodes.tsv is in the split 'trian'; its splits are: dev, test, train",
        ),
    ],
)
def test_a_bad_table_is_named(file: str, text: str, sentence: str, tmp_path: Path) -> None:
    where = write_tables(tmp_path)
    if file:
        (tmp_path / file).write_text(text)
    with pytest.raises(SaccadeError, match=sentence):
        corpora.read(corpora.GRAPHS, where if file else f"{where}#trian")


def test_models_are_compared_by_the_nodes_of_one_graph_and_by_graphs_where_there_are_several() -> (
    None
):
    system = api.build(recipe(), [TINY])
    for examples, count in (([TINY], 2), ([TINY, TINY, TINY], 3)):
        sums, score = system.task.per_example(system.model, examples).sums["accuracy"]
        assert len(sums) == count
        assert score(sums.sum(0)) == pytest.approx(system.evaluate(examples)["accuracy"])


def test_nodes_of_several_words_are_for_graph_networks() -> None:
    task = api.build(recipe(), [TINY]).task
    with raises(
        "wrong-relation",
        match=r"node 1 has 2 words, and this model reads one per node; choose model\.family=graph",
    ):
        task.numbers([Graph(("red", "red blue"), ("a", "b"), (), 1)])


def test_neighbors_help_and_kinds_of_edges_help_more(tmp_path: Path) -> None:
    sizes = {"train": 300, "dev": 60, "test": 1}
    kinds = {"mixer": "graph-attention", "position": {"name": "edges", "kinds": 4}}
    with_kinds = fitted(recipe(sizes=sizes, **kinds), tmp_path / "kinds")
    alone = 62  # as often a node shows its own group's color, or happens to
    assert with_kinds > alone + 8, with_kinds


def test_the_recipe_of_the_karate_club_finds_the_factions(tmp_path: Path) -> None:
    made = recipes.read_recipe("karate", ["training.threads=1"])
    assert fitted(made, tmp_path / "run") >= 80
    system = api.load(tmp_path / "run")
    assert system.evaluate("test")["accuracy"] >= 80
    assert system.evaluate("test")["nodes"] == 22


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ({"nodes": []}, '"nodes" must be a list of words'),
        (
            {"nodes": ["a", "b"], "labels": ["x"], "edges": []},
            "1 labels for 2 nodes; give each node one, or null",
        ),
        (
            {"nodes": ["a"], "labels": [3], "edges": []},
            '"labels" must be a list of words, and null',
        ),
        (
            {"nodes": ["a", "b"], "edges": [[0, 2]]},
            r"\[0, 2\] is not an edge; write \[node, node\] with nodes from 0 to 1",
        ),
        ({"nodes": ["a", "b"], "edges": [[0, True]]}, "is not an edge"),
        ({"nodes": ["a", "b"], "edges": [[0, 1, ""]]}, "the kind of the edge .* is not a word"),
        ({"nodes": ["a", "b"]}, '"edges" must be a list of pairs of nodes'),
    ],
)
def test_a_bad_line_is_named(line: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "graphs.jsonl"
    path.write_text(
        json.dumps({"nodes": ["a"], "labels": ["x"], "edges": []}) + "\n" + json.dumps(line) + "\n"
    )
    with pytest.raises(SaccadeError, match=f"line 2: .*{sentence}"):
        corpora.read(corpora.GRAPHS, str(path))


def test_own_graphs_train_and_are_evaluated_by_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "g.jsonl", tmp_path / "run"
    rows = [
        {
            "nodes": list(one.words),
            "labels": list(one.labels),
            "edges": [list(edge) for edge in one.edges],
        }
        for one in graphs(40, 0, 0)["train"]
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    words = [
        f"data.train={path}",
        "model.size=tiny",
        "training.updates=3",
        "training.threads=1",
        "--out",
        str(out),
    ]
    assert cli.run(["train", "node-classification", *words]) == 0
    assert cli.run(["evaluate", str(out), str(path)]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert cli.run(["symmetry", str(out)]) == 0
    whole = capsys.readouterr().out.splitlines()[1].split()
    assert (whole[:2], whole[3]) == (["model:", "TransformerEncoder"], "yes"), (
        "edges stay behind in a permutation alone"
    )
    assert cli.run(["show", str(out), "red blue"]) == 2
    assert "reads graphs, and a text has no edges" in capsys.readouterr().err
    assert (
        cli.run(
            [
                "train",
                "node-classification",
                f"data.train={path}",
                "vocabulary.kind=bpe",
                "--out",
                str(tmp_path / "other"),
            ]
        )
        == 2
    )
    assert "expected vocabulary.kind=words for nodes" in capsys.readouterr().err
    assert (
        cli.run(
            [
                "train",
                "node-classification",
                "data.train=phrasebook:train",
                "--out",
                str(tmp_path / "other"),
            ]
        )
        == 2
    )
    assert "the corpus 'phrasebook' has no graphs" in capsys.readouterr().err
