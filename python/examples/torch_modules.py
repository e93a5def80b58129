"""Profile the modules of a PyTorch model in training.

Teaches a small convolutional network the handwritten digits. Needs torch and scikit-learn.
"""

import torch
from sklearn.datasets import load_digits

import cprofiling as cp
from cprofiling.integrations.torch import profile_modules

STEPS, BATCH = 60, 64


def network() -> torch.nn.Sequential:
    """Return the network, as two blocks and a head."""
    return torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(128, 10)),
    )


def main() -> None:
    """Train and test, and print accuracy and times."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more threads slow such small batches down
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(digits)
    train, test = images[:1400], images[1400:]
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    cp.set_profiling(True, skip_first_n=1)
    blocks = {"0": "first block", "1": "second block", "2": "head", "0.0": "first convolution"}
    with profile_modules(model, names=blocks):
        with cp.stage("train"):
            for start in range(0, STEPS * BATCH, BATCH):
                rows = torch.arange(start, start + BATCH) % len(train)
                with cp.profile_node("step"):
                    optimizer.zero_grad()
                    loss = torch.nn.functional.cross_entropy(model(train[rows]), labels[:1400][rows])
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
        with torch.no_grad(), cp.stage("test"):
            for image in test[:100]:
                model(image[None])
    with torch.no_grad():  # not counted: the hooks are gone
        right = (model(test).argmax(1) == labels[1400:]).float().mean()
    print(f"{right:.1%} of {len(test)} digits read correctly\n")
    print(cp.format_profiling_summary())


if __name__ == "__main__":
    main()
