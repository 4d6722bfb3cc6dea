"""Event files as a training leaves them, written record by record."""

import pytest
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

LONG_AGO = 1_700_000_000.0


def write_events(folder, series, *, began=1_700_000_000, written=LONG_AGO):
    """Adds {tag: {step: value}} or {tag: [value of step 1, ...]} to an event file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{began}.host.1.0"
    with path.open("ab") as file:
        writer = RecordWriter(file)
        for tag, values in series.items():
            items = values.items() if isinstance(values, dict) else enumerate(values, 1)
            for step, value in items:
                event = event_pb2.Event(step=step, wall_time=written)
                event.summary.value.add(tag=tag, simple_value=value)
                writer.write(event.SerializeToString())
        writer.flush()


@pytest.fixture(scope="session")
def events():
    """`write_events`, for fixtures that outlive a test."""
    return write_events


@pytest.fixture
def log(tmp_path):
    """Writes one run below the test's folder: log(name, {tag: values}, ...) -> its folder."""

    def write(name, series, **more):
        write_events(tmp_path / name, series, **more)
        return tmp_path / name

    return write
