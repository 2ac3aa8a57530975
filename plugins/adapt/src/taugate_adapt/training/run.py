"""A training run that stores its steps in a folder, so that a killed adaptation resumes and gives the same bytes.

The folder is beside the target. The trainers of transformers and sentence-transformers make the steps; this module
decides which weights a checkpoint holds, when it is complete, and how a loss that is not a finite number is handled.
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
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from taugate.calibration.progress import Job, Task
from taugate.errors import EncoderError
from taugate.storage.files import atomic_write
from taugate_adapt.settings import writing_to

_LEARNED = "learned.safetensors"
_COMPLETE = "whole"  # file in a checkpoint, written after everything else
_LOSSES = "losses.json"  # file of a finished stage, written after its weights
SAVE_SECONDS = 10.0  # between two checkpoints: the largest loss of time by a kill
_WARMUP = 0.1  # share of the steps, as in the examples of sentence-transformers


@dataclass(frozen=True)
class Schedule:
    """The steps of a stage, fixed before the first one.

    Attributes:
        rate: Highest learning rate; the rate rises in the first tenth of the steps and then falls to 0.
    """

    steps: int
    batch: int
    rate: float


class LossError(EncoderError):
    """The loss of a stage is not a finite number, so nothing has been learned."""


@dataclass(frozen=True)
class TrainingRun:
    """A training run in the folder of an unfinished adaptation.

    Attributes:
        save: Seconds between two checkpoints, None for SAVE_SECONDS.
        on_step: Called with the duration of each step in seconds; returns whether it was the last one.
    """

    folder: Path
    seed: int
    job: Job
    bfloat16: bool = False
    save: float | None = None
    on_step: Callable[[float], bool | None] | None = None

    def train(
        self,
        stage: str,
        trainer_class: type[Trainer],
        model: torch.nn.Module,
        schedule: Schedule,
        **of_trainer: Any,  # noqa: ANN401 (arguments of the trainer)
    ) -> list[float]:
        """Make the remaining steps of a stage, and return the loss of every step.

        The weights that require a gradient change in place. The same model, data, schedule and seed give the same bits
        on the same machine, even if a run was killed and resumed.
        """
        folder = self.folder / stage
        with writing_to(folder):
            if (finished := self.losses(stage)) is not None:
                _load(folder / _LEARNED, model)
                return finished
            with self.job.task(f"training ({stage})", schedule.steps) as task:
                trainer = self._trainer(folder, trainer_class, model, schedule, task, of_trainer)
                last = _last_checkpoint(folder)
                task.skip(0 if last is None else int(last.name.rpartition("-")[2]))
                try:
                    trainer.train(resume_from_checkpoint=None if last is None else str(last))
                except LossError:  # resuming from the checkpoint would end in the same way
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
            losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
            if len(losses) < schedule.steps:
                self.job.report(
                    f"warning: {stage} ended after {len(losses):,} of {schedule.steps:,} steps, which were slower than "
                    "measured before"
                )
            _save(model, folder)
            atomic_write(folder / _LOSSES, json.dumps(losses).encode())
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        return losses

    def losses(self, stage: str) -> list[float] | None:
        """Return the loss of every step of a finished stage, None if the stage is not finished."""
        path = self.folder / stage / _LOSSES
        return [float(loss) for loss in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else None

    def step_seconds(self, stage: str, train: Callable[["TrainingRun"], object]) -> float:
        """Return the duration of the fastest step after the first one, which is a warm-up.

        Args:
            train: Function that makes some steps of a run on a copy of the model.
        """
        durations: list[float] = []
        scratch = replace(self, folder=self.folder / f"timing-{stage}", save=math.inf, on_step=durations.append)
        shutil.rmtree(scratch.folder, ignore_errors=True)
        try:
            train(scratch)
        finally:
            shutil.rmtree(scratch.folder, ignore_errors=True)
        return min(durations[1:] or durations)

    def _trainer(
        self,
        folder: Path,
        trainer_class: type[Trainer],
        model: torch.nn.Module,
        schedule: Schedule,
        task: Task,
        of_trainer: Mapping[str, Any],
    ) -> Trainer:
        learner = model

        class Resumable(trainer_class):  # type: ignore[misc, valid-type]
            """Stores only the trained weights in a checkpoint, and makes no model card."""

            def add_model_card_callback(self, *_: object) -> None:
                pass

            def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
                Path(str(output_dir)).mkdir(parents=True, exist_ok=True)
                _save(learner, Path(str(output_dir)))

            def _load_from_checkpoint(self, resume_from_checkpoint: str, model: object = None) -> None:
                _load(Path(resume_from_checkpoint) / _LEARNED, learner)

        for library in ("transformers", "sentence_transformers"):  # their warnings are about the calls of this module
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
        save = SAVE_SECONDS if self.save is None else self.save
        trainer.add_callback(_Progress(folder.name, task, save, self.on_step))
        return trainer


class InOrder(Trainer):
    """Shows the examples in the order of the data set, which is already random."""

    def _get_train_sampler(self, train_dataset: Dataset[dict[str, Any]] | None = None) -> SequentialSampler:
        shown: Any = self.train_dataset if train_dataset is None else train_dataset
        return SequentialSampler(shown)


class _Progress(TrainerCallback):
    """Shows every step, requests and marks complete checkpoints, and stops a run whose loss is not a finite number."""

    def __init__(self, stage: str, task: Task, save: float, on_step: Callable[[float], bool | None] | None) -> None:
        self._stage, self._task, self._save, self._on_step = stage, task, save, on_step
        self._saved = self._stepped = time.perf_counter()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._stepped = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        now = time.perf_counter()
        self._task.advance(state.global_step - self._task.done)
        if self._on_step is not None and self._on_step(now - self._stepped):
            control.should_training_stop = True
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
                f"{self._stage}: the loss of step {state.global_step} is not a finite number; choose another recipe or "
                "another base encoder"
            )

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        folder = Path(str(args.output_dir))
        newest = folder / f"checkpoint-{state.global_step}"
        atomic_write(newest / _COMPLETE, b"")
        for checkpoint in folder.glob("checkpoint-*"):
            if checkpoint != newest:
                shutil.rmtree(checkpoint)


def _learned(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _save(model: torch.nn.Module, folder: Path) -> None:
    """Write the trained weights; a half-written file never has the final name."""
    partial = folder / f"{_LEARNED}.partial"
    save_file({name: weight.detach().cpu().contiguous() for name, weight in _learned(model).items()}, partial)
    partial.replace(folder / _LEARNED)


def _load(path: Path, model: torch.nn.Module) -> None:
    stored = load_file(path)
    with torch.no_grad():
        for name, weight in _learned(model).items():
            weight.copy_(stored[name])


def _last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, and remove incomplete ones."""
    complete = []
    for checkpoint in folder.glob("checkpoint-*"):
        if (checkpoint / _COMPLETE).is_file():
            complete.append(checkpoint)
        else:
            shutil.rmtree(checkpoint)
    return max(complete, key=lambda checkpoint: int(checkpoint.name.rpartition("-")[2]), default=None)
