"""Trains with every combination of a training library, a schedule that asks for the number of steps, and a validation loop, and
prints which records were used. `test_trainers.py` runs it on one and two ranks.

    python trainers.py DATA.npz FOLDER [FOLDER_OF_OTHER_RANKS]

Each run is stopped in the middle of its second epoch and resumed by new objects, and so is that of the other folder; without a
FOLDER (`-`) only the latter.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

import pelton

warnings.simplefilter("ignore")
EPOCHS, BATCH, RECORDS = 3, 12, 103
STEPS = -(-RECORDS // BATCH)
STOPPED = STEPS + 4
RANK = int(os.environ.get("RANK", "0"))

combination: tuple[str, bool, bool] = ("", False, False)
phase = ""


def used(batch: Any, is_training: bool = True) -> None:
    """Prints the records of a batch."""
    epoch, ids = int(batch["epoch"][0]), batch["ids"].tolist()
    # In one write, because ranks share the output.
    os.write(1, (json.dumps([*combination, phase, is_training, RANK, epoch, ids]) + "\n").encode())


def pipelines(file: str) -> tuple[Any, Any]:
    """Training and validation data."""
    data = pelton.load(file).include("ids", "epoch")
    return data.shuffle(seed=3).batch(BATCH).torch(), data.take(20).batch(10).torch()


def loss_of(net: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(net(batch["x"]), batch["label"])


def lightning_fit(file: str, folder: Path, has_schedule: bool, validates: bool, resumed: Path | None) -> None:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(3, 10)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            used(batch)
            return loss_of(self.net, batch)

        def validation_step(self, batch: Any, index: int) -> None:
            if not self.trainer.sanity_checking:
                used(batch, is_training=False)

        def configure_optimizers(self) -> Any:
            optimiser = torch.optim.SGD(self.parameters(), 0.01)
            if not has_schedule:
                return optimiser
            steps = int(self.trainer.estimated_stepping_batches)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=max(steps, EPOCHS * STEPS) + 1)
            return [optimiser], [{"scheduler": schedule, "interval": "step"}]

    train, valid = pipelines(file)
    limits: dict[str, Any] = {"max_epochs": EPOCHS} if resumed else {"max_epochs": EPOCHS, "max_steps": STOPPED}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(os.environ.get("WORLD_SIZE", "1")), logger=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, num_sanity_val_steps=1 if validates else 0, **limits,
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=STOPPED, save_last=True)] if resumed is None else [],
        enable_checkpointing=resumed is None,
    )  # fmt: skip
    trainer.fit(Net(), train, valid if validates else None, ckpt_path=None if resumed is None else resumed / "last.ckpt")


def trainer_fit(file: str, folder: Path, has_schedule: bool, validates: bool, resumed: Path | None) -> None:
    import transformers

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(3, 10)

        def forward(self, ids: Any, epoch: Any, x: Any, label: Any) -> dict[str, Any]:
            used({"ids": ids, "epoch": epoch}, self.training)
            loss = torch.nn.functional.cross_entropy(self.net(x), label)
            return {"loss": loss}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return self.train_dataset

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return self.eval_dataset

    class SavePosition(transformers.TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
            if state.is_world_process_zero:
                target = Path(args.output_dir, f"checkpoint-{state.global_step}", "data.json")
                target.write_text(json.dumps(train_dataloader.state_dict()))

    train, valid = pipelines(file)
    arguments = transformers.TrainingArguments(
        str(folder), num_train_epochs=EPOCHS, max_steps=-1, save_steps=STOPPED, report_to=[], ignore_data_skip=True, use_cpu=True,
        disable_tqdm=True, lr_scheduler_type="linear" if has_schedule else "constant", eval_strategy="epoch" if validates else "no",
        remove_unused_columns=False, logging_strategy="no", label_names=["label"],
    )  # fmt: skip

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step >= STOPPED

    callbacks = [SavePosition()] if resumed else [SavePosition(), Stop()]
    trainer = Trainer(Net(), arguments, train_dataset=train, eval_dataset=valid if validates else None, callbacks=callbacks)
    checkpoint = None if resumed is None else str(resumed / f"checkpoint-{STOPPED}")
    if checkpoint is not None:
        train.load_state_dict(json.loads(Path(checkpoint, "data.json").read_text()))
    trainer.train(resume_from_checkpoint=checkpoint)


def accelerate_fit(file: str, folder: Path, has_schedule: bool, validates: bool, resumed: Path | None) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    train, valid = pipelines(file)
    net: Any = torch.nn.Linear(3, 10)
    optimiser: Any = torch.optim.SGD(net.parameters(), 0.01)
    net, optimiser = accelerator.prepare(net, optimiser)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=EPOCHS * len(train) + 1) if has_schedule else None
    accelerator.register_for_checkpointing(train, *([schedule] if schedule else []))
    steps = 0
    if resumed is not None:
        accelerator.load_state(str(resumed))
    for _ in range(train.state_dict()["epoch"], EPOCHS):
        for batch in train:
            used(batch)
            loss = loss_of(net, batch)
            optimiser.zero_grad()
            accelerator.backward(loss)
            optimiser.step()
            if schedule:
                schedule.step()
            steps += 1
            if resumed is None and steps == STOPPED:
                accelerator.save_state(str(folder))
                return
        if validates:
            for batch in valid:
                used(batch, is_training=False)


FITS = {"accelerate": accelerate_fit, "transformers": trainer_fit, "lightning": lightning_fit}


def main() -> None:
    global combination, phase
    file, folder, *others = sys.argv[1:]
    torch.set_num_threads(1)
    for library, fit in FITS.items():
        for has_schedule in (False, True):
            for validates in (False, True):
                combination = (library, has_schedule, validates)
                name = "-".join(map(str, combination))
                own = Path(folder, name)
                runs = [] if folder == "-" else [("first", None), ("same", own)]
                runs += [("others", Path(other, name)) for other in others]
                for phase, resumed in runs:
                    fit(file, own, has_schedule, validates, resumed)


if __name__ == "__main__":
    main()
