"""Components of diffusers' pipelines as nodes: models, schedulers, and what is called of them by name."""

from __future__ import annotations

import pickle
import re
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, counts, outcomes, profiler_on, stages
from example_runs import counts_in, output_of

torch: Any = pytest.importorskip("torch")
diffusers: Any = pytest.importorskip("diffusers")

from cprofiling.integrations.diffusers import profile_pipeline  # noqa: E402 it needs diffusers

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("one_thread")]


def unet(channels: int = 1) -> Any:
    return diffusers.UNet2DModel(
        sample_size=8, in_channels=channels, out_channels=channels, block_out_channels=(8, 8), norm_num_groups=4,
        layers_per_block=1, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2,
    )  # fmt: skip


@pytest.fixture
def pipeline() -> Any:
    torch.manual_seed(0)
    made = diffusers.DDPMPipeline(unet(), diffusers.DDPMScheduler())
    made.set_progress_bar_config(disable=True)
    return made


def image_of(pipeline: Any, steps: int = 3) -> Any:
    return pipeline(num_inference_steps=steps, output_type="np", generator=torch.Generator().manual_seed(0)).images


def test_model_and_scheduler_count(pipeline: Any, p: cp.Profiler) -> None:
    kind = type(pipeline.scheduler)
    plain = image_of(pipeline)
    with profile_pipeline(pipeline, profiler=p) as handle:
        assert handle.names == ("unet", "scheduler", "scheduler.set_timesteps", "scheduler.add_noise")
        assert (image_of(pipeline) == plain).all()
        with cp.stage("test"):
            image_of(pipeline, 2)
    assert stages(p) == {
        ("scheduler.set_timesteps", "inference"): 1, ("unet", "inference"): 3, ("scheduler", "inference"): 3,
        ("scheduler.set_timesteps", "test"): 1, ("unet", "test"): 2, ("scheduler", "test"): 2,
    }  # fmt: skip
    assert (image_of(pipeline) == plain).all()
    assert sum(counts(p).values()) > 0
    assert not pipeline.unet._forward_hooks
    assert vars(kind)["step"] is kind.step
    assert "profiled" not in repr(kind.step)


def test_what_a_pipeline_calls_of_its_models_by_name(p: cp.Profiler) -> None:
    """A latent diffusion pipeline decodes by ``vqvae.decode``."""
    torch.manual_seed(0)
    vqvae = diffusers.VQModel(
        in_channels=3, out_channels=3, block_out_channels=(8, 8), norm_num_groups=4, latent_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, num_vq_embeddings=8,
    )  # fmt: skip
    made = diffusers.LDMPipeline(vqvae=vqvae, unet=unet(3), scheduler=diffusers.DDIMScheduler())
    made.set_progress_bar_config(disable=True)
    with profile_pipeline(made, stage="val", profiler=p):
        image_of(made)
        made.vqvae(torch.ones(1, 3, 16, 16))
    assert {node: count for (node, stage), count in stages(p).items() if stage == "val"} == {
        "scheduler.set_timesteps": 1, "unet": 3, "scheduler": 3, "vqvae.decode": 2, "vqvae.encode": 1, "vqvae": 1,
    }  # fmt: skip


def test_exceptions_pass_through_and_count(pipeline: Any, p: cp.Profiler) -> None:
    with profile_pipeline(pipeline, profiler=p):
        with pytest.raises(RuntimeError) as raised:
            pipeline.unet(torch.ones(1, 2, 8, 8), 0)
        with pytest.raises(ValueError, match="num_inference_steps"):
            pipeline.scheduler.set_timesteps(5_000)
    assert "channels" in str(raised.value)
    assert outcomes(p, "unet") == outcomes(p, "scheduler.set_timesteps") == (0, 1, 0, 0, 0)


class Tokenizer:
    """Called itself, as tokenizers are."""

    def __call__(self, text: str) -> list[str]:
        return text.split()


class Kind(type):
    made = 0

    def __call__(cls) -> Any:
        Kind.made += 1
        return super().__call__()


class Countable(metaclass=Kind):
    """A class whose class is somebody's own."""


class Unreachable:
    """Nobody can put anything in its place: it takes no weak reference, and has no dict."""

    __slots__ = ()

    def step(self) -> int:
        return 1

    @property
    def add_noise(self) -> Any:
        raise RuntimeError("not yet")


def test_components_that_are_no_models(p: cp.Profiler) -> None:
    tokenizer, other = Tokenizer(), Tokenizer()
    components: dict[str, Any] = {
        "tokenizer": tokenizer, "unreachable": Unreachable(), "nothing": None, "number": 1.5, "kind": Tokenizer,
        "made by a class of somebody's": Countable,
    }  # fmt: skip
    with profile_pipeline(SimpleNamespace(components=components), profiler=p) as handle:
        assert handle.names == ("tokenizer",)
        assert tokenizer("a b") == ["a", "b"]
        assert other("a b") == ["a", "b"]
        assert pickle.loads(pickle.dumps(tokenizer))("a") == ["a"]
        assert components["unreachable"].step() == 1
        assert type(vars(Kind)["__call__"]) is type(lambda: None)
        assert isinstance(Countable(), Countable)
        assert Kind.made == 1
    tokenizer("c")
    assert counts(p) == {"tokenizer": 1}
    assert type(vars(Tokenizer)["__call__"]) is type(lambda: None)


def test_the_default_profiler_counts_what_is_no_module_too() -> None:
    tokenizer = Tokenizer()
    pipeline = SimpleNamespace(components={"tokenizer": tokenizer, "net": torch.nn.Linear(2, 2)})
    cp.set_profiling(True)
    with profile_pipeline(pipeline), profile_pipeline(SimpleNamespace(components={"shared": tokenizer})):
        tokenizer("a")
        pipeline.components["net"](torch.ones(2))
    assert counts(cp.default_profiler) == {"shared": 1, "net": 1}
    cp.profile_node("afterwards")(id)(tokenizer)
    assert counts(cp.default_profiler)["afterwards"] == 1


def test_installed_and_removed_again_and_again(pipeline: Any, p: cp.Profiler) -> None:
    other = profiler_on()
    for _ in range(10):
        profile_pipeline(pipeline, profiler=p).remove()
    with profile_pipeline(pipeline, profiler=p), profile_pipeline(pipeline, profiler=other):
        image_of(pipeline)
    assert counts(p) == counts(other) == {"scheduler.set_timesteps": 1, "unet": 3, "scheduler": 3}
    assert by_name(p)["unet"].error_count == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pipeline": None}, "pipeline must have components, got None"),
        ({"pipeline": SimpleNamespace(components=[])}, "pipeline must have components, got "),
        ({"profiler": 3}, "profiler"),
        ({"stage": 3}, "stage"),
    ],
)
def test_wrong_arguments(pipeline: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        profile_pipeline(**{"pipeline": pipeline, **arguments})
    assert not pipeline.unet._forward_hooks


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of("diffusers_components.py", capsys)
    assert output.startswith("2 images of 16 x 16 pixels in 10 steps each\n\nProfiling Summary (2 frames)\n")
    assert counts_in(output) == {
        ("inference", "unet"): 20, ("inference", "scheduler"): 20, ("inference", "scheduler.set_timesteps"): 2,
    }  # fmt: skip
