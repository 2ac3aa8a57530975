"""An unfinished adaptation: a folder that remembers its steps, so that a killed one goes on, to the same bytes.

It lies beside the encoder to be. The trainers of transformers and sentence-transformers make the steps; what is added
here is which weights a checkpoint holds, when it counts as whole, and what becomes of a loss that is no number.
"""

import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import BatchSamplers
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from taugate.adaptation.unfinished import writing_to
from taugate.calibration.progress import Stopwatch, Task
from taugate.errors import EncoderError
from taugate.storage.files import atomic_write

_LEARNED = "learned.safetensors"
_WHOLE = "whole"  # in a checkpoint, written after everything else
_LOSSES = "losses.json"  # of a stage that is finished, written after its weights
SAVE_SECONDS = 10.0  # between two checkpoints: what a kill costs
_WARMUP = 0.1  # of the steps, as in the examples of sentence-transformers


@dataclass(frozen=True)
class Schedule:
    """The steps of a stage, fixed before the first one.

    Attributes:
        steps: How many.
        batch: Examples of each.
        rate: The highest learning rate, to which it rises in the first tenth of the steps, and from which it falls to
            0.
    """

    steps: int
    batch: int
    rate: float


class LossError(EncoderError):
    """The loss of a stage is no number, so that nothing has been learned."""


@dataclass(frozen=True)
class TrainingRun:
    """The folder of an unfinished adaptation, and how its steps are made.

    Attributes:
        folder: A folder for each stage.
        seed: Of every random choice.
        watch: Shows the step that is being made, and with it the remaining time.
        bfloat16: Whether products are computed in bfloat16, which some processors do faster.
        save: Seconds between two checkpoints, None for SAVE_SECONDS.
    """

    folder: Path
    seed: int
    watch: Stopwatch
    bfloat16: bool = False
    save: float | None = None

    def train(
        self,
        stage: str,
        trainer_class: type[Trainer],
        model: torch.nn.Module,
        schedule: Schedule,
        told: Callable[[float], None] | None = None,
        **of_trainer: Any,  # noqa: ANN401 (whatever the trainer takes)
    ) -> list[float]:
        """Make the steps of a stage, or those that a killed run has left; returns the loss of every step.

        The weights that require a gradient change in place. The same model, data, schedule and seed give the same bits
        on the same machine, killed in between or not.

        Args:
            stage: Its name, and that of its folder.
            trainer_class: Trainer, or one derived from it.
            model: To train.
            schedule: Of the steps.
            told: The seconds of each step that is made.
            of_trainer: Further arguments of the trainer's constructor, such as train_dataset, data_collator or loss.

        Raises:
            LossError: Where a loss is no number, InputError where the folder cannot be written.
        """
        folder = self.folder / stage
        with writing_to(folder):
            if (made := self.losses(stage)) is not None:
                _load(folder / _LEARNED, model)
                return made
            with self.watch.task(f"training ({stage})", schedule.steps) as task:
                trainer = self._trainer(folder, trainer_class, model, schedule, task, told, of_trainer)
                last = _last_checkpoint(folder)
                task.done = task.known = 0 if last is None else int(last.name.rpartition("-")[2])
                try:
                    trainer.train(resume_from_checkpoint=None if last is None else str(last))
                except LossError:  # what is there would end in the same way
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
            losses = [float(each["loss"]) for each in trainer.state.log_history if "loss" in each]
            _save(model, folder)
            atomic_write(folder / _LOSSES, json.dumps(losses).encode())
            for each in folder.glob("checkpoint-*"):
                shutil.rmtree(each)
        return losses

    def losses(self, stage: str) -> list[float] | None:
        """Return the loss of every step of a stage that is finished, None of another one.

        Args:
            stage: Its name.
        """
        path = self.folder / stage / _LOSSES
        return [float(loss) for loss in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else None

    def step_seconds(self, stage: str, train: Callable[["TrainingRun", Callable[[float], None]], object]) -> float:
        """Return how long a step takes: that of the fastest one after the first, which also warms up.

        Args:
            stage: A name for the folder, which is removed.
            train: Makes some steps, on a copy of the model, with the run and the listener that it is given.
        """
        durations: list[float] = []
        scratch = replace(self, folder=self.folder / f"timing-{stage}", save=math.inf)
        shutil.rmtree(scratch.folder, ignore_errors=True)
        try:
            train(scratch, durations.append)
        finally:
            shutil.rmtree(scratch.folder, ignore_errors=True)
        return min(durations[1:] or durations)

    def _trainer(  # noqa: PLR0913, PLR0917 (those of `train`)
        self,
        folder: Path,
        trainer_class: type[Trainer],
        model: torch.nn.Module,
        schedule: Schedule,
        task: Task,
        told: Callable[[float], None] | None,
        of_trainer: Mapping[str, Any],
    ) -> Trainer:
        learner = model

        class Resumable(trainer_class):  # type: ignore[misc, valid-type]
            """Keeps in a checkpoint what learns, and nothing else of the model, and makes no model card."""

            def add_model_card_callback(self, *_: object) -> None:
                pass

            def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
                Path(str(output_dir)).mkdir(parents=True, exist_ok=True)
                _save(learner, Path(str(output_dir)))

            def _load_from_checkpoint(self, resume_from_checkpoint: str, model: object = None) -> None:
                _load(Path(resume_from_checkpoint) / _LEARNED, learner)

        for library in ("transformers", "sentence_transformers"):  # their remarks are on how this code calls them
            logging.getLogger(library).setLevel(logging.ERROR)
        folder.mkdir(parents=True, exist_ok=True)
        gpu = torch.cuda.is_available()
        sentences = issubclass(trainer_class, SentenceTransformerTrainer)
        arguments_class: Any = SentenceTransformerTrainingArguments if sentences else TrainingArguments
        arguments = arguments_class(
            output_dir=str(folder),
            max_steps=schedule.steps,
            per_device_train_batch_size=schedule.batch,
            learning_rate=schedule.rate,
            warmup_steps=math.ceil(_WARMUP * schedule.steps),
            seed=self.seed,
            data_seed=self.seed,
            bf16=self.bfloat16,
            use_cpu=not gpu,
            save_strategy="no",  # _Progress asks for a checkpoint when it is time for one
            logging_steps=1,
            logging_nan_inf_filter=False,
            disable_tqdm=True,
            report_to=[],
            remove_unused_columns=False,
            dataloader_num_workers=0,
            dataloader_pin_memory=gpu,
            **({"batch_sampler": BatchSamplers.NO_DUPLICATES} if sentences else {}),
        )
        trainer: Trainer = Resumable(model=model, args=arguments, **of_trainer)
        trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
        trainer.add_callback(_Progress(folder.name, task, SAVE_SECONDS if self.save is None else self.save, told))
        return trainer


class _Progress(TrainerCallback):
    """Shows every step, asks for checkpoints, marks those that are whole, and ends a run whose loss is no number."""

    def __init__(self, stage: str, task: Task, save: float, told: Callable[[float], None] | None) -> None:
        self._stage, self._task, self._save, self._told = stage, task, save, told
        self._saved = self._stepped = time.perf_counter()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._stepped = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        now = time.perf_counter()
        self._task.done = state.global_step
        if self._told is not None:
            self._told(now - self._stepped)
        if now - self._saved >= self._save and state.global_step < state.max_steps:
            control.should_save = True
            self._saved = now

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        if logs is not None and not math.isfinite(logs.get("loss", 0.0)):
            raise LossError(
                f"{self._stage}: the loss of step {state.global_step} is no number; choose another recipe, or another "
                "base encoder"
            )

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        folder = Path(str(args.output_dir))
        whole = folder / f"checkpoint-{state.global_step}"
        atomic_write(whole / _WHOLE, b"")
        for each in folder.glob("checkpoint-*"):
            if each != whole:
                shutil.rmtree(each)


def _learned(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def _save(model: torch.nn.Module, folder: Path) -> None:
    """Write the weights that learn; a half-written file never has the final name."""
    partial = folder / f"{_LEARNED}.partial"
    save_file({name: each.detach().cpu().contiguous() for name, each in _learned(model).items()}, partial)
    partial.replace(folder / _LEARNED)


def _load(path: Path, model: torch.nn.Module) -> None:
    found = load_file(path)
    with torch.no_grad():
        for name, weight in _learned(model).items():
            weight.copy_(found[name])


def _last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint that is whole, after those that are not have been removed."""
    whole = []
    for each in folder.glob("checkpoint-*"):
        if (each / _WHOLE).is_file():
            whole.append(each)
        else:
            shutil.rmtree(each)
    return max(whole, key=lambda each: int(each.name.rpartition("-")[2]), default=None)
