"""Networks are made, saved and loaded by name, with weights that come back bit by bit, or one line says why not."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.architecture import describe_tdagnn
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.networks.models import ETDAGNN, TDAGNN
from equiflock.controllers.networks.weights import FORMAT, collect_tensors, read_tensors, write_tensors, write_weights
from equiflock.controllers.trained import PAPER_NETWORKS as NETWORKS
from equiflock.controllers.trained import bundled_weights_path


def test_equal_weights_give_equal_files(tmp_path: Path) -> None:
    extra = {"command": "equiflock train", "seed": 1, "note": "one", "more": "two"}
    files = [write_weights(make_network("etdagnn", seed=1), tmp_path / f"{n}.safetensors", extra) for n in range(4)]
    assert len({path.read_bytes() for path in files}) == 1


def test_registered_module_is_made_saved_and_loaded(tmp_path: Path, own_registry: None) -> None:
    @ef.controller("mixer")
    class Mixer(torch.nn.Module):
        senses = ef.paper_senses("mean", hops=2)

        def __init__(self, spare: int = 1) -> None:
            super().__init__()
            self.options = {"spare": spare}
            self.mix = torch.nn.Linear(6, 1, bias=False)
            self.spare = torch.nn.Linear(spare, spare)
            self.tied = self.spare

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return self.mix(observations.flatten(2, 3).transpose(2, 3)).squeeze(-1)

    network: Any = make_network("mixer", seed=3, spare=4)
    back: Any = ef.load(write_weights(network, tmp_path / "mixer.safetensors"))
    assert back.spare.weight.shape == (4, 4)
    assert (back.mix.weight == network.mix.weight).all()
    assert next(ef.flight(ef.random_disk(1, 20), back)).accelerations.shape == (1, 20, 2)


def test_equal_seeds_give_equal_weights_and_keep_torchs_random_state() -> None:
    state = torch.random.get_rng_state()
    one, two, other = make_network("etdagnn", seed=1), make_network("etdagnn", seed=1), make_network("etdagnn", seed=2)
    assert (torch.random.get_rng_state() == state).all()
    for a, b, c in zip(one.parameters(), two.parameters(), other.parameters(), strict=True):
        assert (a == b).all()
        assert (a != c).any()


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_round_trip_through_disk(name: str, tmp_path: Path) -> None:
    options = {"hops": 2} if name == "etdagnn" else {"hops": 2, "dimensions": 3}
    network: Any = make_network(name, seed=3, **options)
    path = network.save(tmp_path / "mine.safetensors", {"command": "equiflock train"})
    back: Any = ef.load_module(str(path))
    assert (back.name, back.senses) == (name, network.senses)
    z = torch.randn(1, 4, 2, 3, 3)
    assert (back(z) == network(z)).all()
    compiled: Any = ef.load(path)
    assert (compiled(z.numpy()) == network.compiled_form()(z.numpy())).all()
    assert [p.name for p in tmp_path.iterdir()] == ["mine.safetensors"]


def test_damaged_or_foreign_files_raise(tmp_path: Path) -> None:
    path = ETDAGNN().save(tmp_path / "good.safetensors")
    weights = load_file(path)
    meta = {"network": "etdagnn", "options": {"hops": 3}}

    def written(tensors: dict[str, Any], metadata: dict[str, Any], kind: str = "equiflock weights 1") -> bytes:
        return write_tensors(tensors, tmp_path / "case.safetensors", kind, metadata).read_bytes()

    flipped = bytearray(path.read_bytes())
    flipped[-1] ^= 1
    cases = {
        "missing": (None, "there is no such file"),
        "truncated": (path.read_bytes()[:200], "is not a safetensors file"),
        "text": (b"hello", "is not a safetensors file"),
        "foreign": (save(weights), "is of another kind: expected format 'equiflock weights 1'"),
        "version": (written(weights, meta, "equiflock weights 2"), "got 'equiflock weights 2'"),
        "flipped": (bytes(flipped), "is damaged: its checksum does not match"),
        "metadata": (save(weights, {"equiflock": "["}), "the metadata of .* is damaged"),
        "unknown": (written(weights, meta | {"network": "resnet"}), "holds weights of 'resnet'"),
        "options": (written(weights, meta | {"options": "["}), "the metadata of .* is damaged"),
        "misfit": (written(weights, meta | {"options": {"hops": 5}}), "do not fit etdagnn with {'hops': 5}"),
        "other": (written(collect_tensors(TDAGNN()), meta), "do not fit etdagnn"),
        "nan": (written({name: tensor * np.nan for name, tensor in weights.items()}, meta), "must be finite"),
    }
    for name, (content, text) in cases.items():
        case = tmp_path / f"{name}.safetensors"
        if content is not None:
            case.write_bytes(content)
        with pytest.raises(InputError, match=text):
            ef.load(case)


def test_weights_of_version_0_2_load_unless_they_are_damaged(tmp_path: Path) -> None:
    path = ETDAGNN().save(tmp_path / "new.safetensors")
    tensors, metadata = read_tensors(path, FORMAT)
    # Version 0.2 wrote the CRC-32 of the same content.
    parts = [json.dumps(metadata, sort_keys=True).encode()]
    for name in sorted(tensors):
        parts += [f"{name} torch.{tensors[name].dtype} {tensors[name].shape}".encode(), tensors[name].tobytes()]
    checksum = f"{zlib.crc32(b''.join(parts)):08x}"
    old = tmp_path / "old.safetensors"
    old.write_bytes(save(tensors, {"equiflock": json.dumps({**metadata, "checksum": checksum})}))
    loaded = collect_tensors(ef.load(old))
    assert all(np.array_equal(loaded[name], tensor) for name, tensor in collect_tensors(ef.load(path)).items())
    old.write_bytes(old.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="is damaged: its checksum does not match"):
        ef.load(old)


def test_bundled_weights_have_sha_256_checksums() -> None:
    for path in bundled_weights_path("etdagnn", 0).parent.glob("*.safetensors"):
        with safe_open(path, framework="np") as file:
            assert len(json.loads(file.metadata()["equiflock"])["checksum"]) == 64, path


def test_unknown_network_gives_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'etdagnn'"):
        make_network("etdagn")


class Mixer(torch.nn.Module):
    senses = ef.paper_senses("sum", hops=2)

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.options = {"hidden": hidden}
        self.layers = torch.nn.Sequential(torch.nn.Linear(12, hidden), torch.nn.Linear(hidden, 2))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(observations.flatten(2))


@pytest.mark.usefixtures("own_registry")
def test_custom_module_is_saved_and_loaded(tmp_path: Path) -> None:
    own = ef.controller("mixer")(type("Own", (Mixer,), {}))
    network = own(hidden=5)
    path = ef.save(network, tmp_path / "mine.safetensors")
    back: Any = ef.load(path)
    known = ef.observe(ef.random_disk(1, 30), ef.paper_senses("sum", 2))
    np.testing.assert_array_equal(back(known), network(known))
    assert isinstance(back(known), np.ndarray)
    with pytest.raises(InputError, match=r"cannot be made with the options \{\}: .*hidden"):
        ef.load("mixer")


@pytest.mark.usefixtures("own_registry")
def test_networks_that_load_could_not_find_are_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    with pytest.raises(InputError, match="Mixer is not registered, so load would not find it"):
        ef.save(Mixer(5), path)
    own = ef.controller("mixer")(type("Own", (Mixer,), {}))
    network = own(hidden=5)
    network.options = {"hidden": 6}
    with pytest.raises(InputError, match="differs from this network"):
        ef.save(network, path)
    with pytest.raises(InputError, match="save needs a network; got"):
        ef.save(ef.load("tanner"), path)
    with pytest.raises(InputError, match=r"must end in .safetensors; got 'mine.pt'"):
        ef.save(ef.load("etdagnn"), tmp_path / "mine.pt")
    assert list(tmp_path.iterdir()) == []


def test_networks_with_incomplete_options_are_not_saved(tmp_path: Path) -> None:
    for odd in (describe_tdagnn(second_tanh=False), describe_tdagnn("tdagnn-tf")):
        with pytest.raises(InputError, match="differs from this network"):
            ef.save(TDAGNN(odd), tmp_path / "odd.safetensors")
    learning = TDAGNN().train()
    ef.save(learning, tmp_path / "mine.safetensors")
    assert learning.training


@pytest.mark.usefixtures("own_registry")
def test_save_errors_state_the_reason(tmp_path: Path) -> None:
    own = ef.controller("mixer")(type("Own", (Mixer,), {}))
    path = tmp_path / "mine.safetensors"
    with pytest.raises(InputError, match="Other is not registered, only its base class"):
        ef.save(type("Other", (own,), {})(5), path)
    with pytest.raises(
        InputError, match=r"observations are float32, but layers\.0\.weight is float64: call \.float\(\)"
    ):
        ef.save(own(5).double(), path)
    broken = own(5)
    with torch.no_grad():
        broken.layers[0].weight.fill_(torch.nan)
    with pytest.raises(InputError, match="the weights must be finite"):
        ef.save(broken, path)
    with pytest.raises(InputError, match="observations are float32"):
        ef.simulate(ef.random_disk(1, 10), own(5).double())


@pytest.mark.usefixtures("own_registry")
def test_wrong_channels_raise_one_line(tmp_path: Path) -> None:
    @ef.controller("narrow")
    class Narrow(torch.nn.Module):
        senses = ef.Senses((("velocity", "mean"),), hops=1)

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(6, 2)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.layer(observations.flatten(2))
            return answer

    network: Any = Narrow()
    for use in (
        lambda: ef.simulate(ef.random_disk(1, 10), network),
        lambda: ef.save(network, tmp_path / "narrow.safetensors"),
    ):
        with pytest.raises(InputError, match=r"narrow does not take observations .*shapes") as caught:
            use()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [ef.load, ef.load_module])
def test_the_longest_time_step_of_the_training_is_saved_with_the_weights(load: Any, tmp_path: Path) -> None:
    def save(network: Any, **more: Any) -> Any:
        return ef.load(ef.save(network, tmp_path / "saved.safetensors", **more))

    assert save(load("starling")).longest_time_step == 0.05
    assert save(save(load("starling"))).longest_time_step == 0.05
    assert save(load("starling"), extra={"recipe": {"time_step": 0.02}}).longest_time_step == 0.02
    assert save(make_network("etdagnn")).longest_time_step is None


def test_orbit_parameters_are_saved_with_the_weights(tmp_path: Path) -> None:
    network: Any = make_network("etdagnn", seed=1)
    plain = ef.save(network, tmp_path / "plain.safetensors")
    assert ef.load(plain).orbit is None  # type: ignore[union-attr]
    network.orbit = ef.Orbit(gravity_break=0.56, near=1.19, slow=0.115)
    tuned = ef.save(network, tmp_path / "tuned.safetensors")
    again: Any = ef.load(tuned)
    assert again.orbit == network.orbit
    assert ef.save(again, tmp_path / "again.safetensors").read_bytes() == tuned.read_bytes()
    scaled: Any = ef.load(tuned, comm_radius=5.0)
    assert scaled.orbit == network.orbit
    for wrong in ({"gravity_break": 2.0}, {"far": 1.0}, 3):
        path = write_weights(make_network("etdagnn"), tmp_path / "wrong.safetensors", {"orbit": wrong})
        with pytest.raises(InputError, match=r"the metadata of .* is damaged"):
            ef.load(path)


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_written_without_torch_give_equal_files(name: str, tmp_path: Path) -> None:
    bundled = bundled_weights_path(name)
    tensors, _ = read_tensors(bundled, "equiflock weights 1")
    by_torch, by_numpy = tmp_path / "torch.safetensors", tmp_path / "numpy.safetensors"
    assert ef.save(ef.load_module(name), by_torch).read_bytes() == ef.save(ef.load(name), by_numpy).read_bytes()
    again, _ = read_tensors(by_numpy, "equiflock weights 1")
    assert all(np.array_equal(again[key], tensor) for key, tensor in tensors.items())


def test_a_network_of_the_package_is_loaded_compiled_and_anything_else_has_no_module() -> None:
    assert isinstance(ef.load("etdagnn"), CompiledNetwork)
    assert isinstance(ef.load_module("etdagnn", seed=2), ETDAGNN)
    assert repr(ef.load("starling")) == "CompiledNetwork(starling, 1312 weights)"
    with pytest.raises(InputError, match="tanner has no torch module: expected a network, such as tdagnn"):
        ef.load_module("tanner")
    with pytest.raises(InputError, match="omit comm_radius and time_scale"):
        ef.load_module("etdagnn", comm_radius=2.0)
