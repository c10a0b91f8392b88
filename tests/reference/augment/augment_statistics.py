"""Statistics of the reference's training augmentation on drawn images; the numbers stand in src-tauri/src/augment/train.rs.

usage: augment_statistics.py N_SAMPLES   (ultralytics 8.4.190 as an installed library, called, none of its code copied)

Images: 8 of 128 x 96 pixels, colour (200, 120, 60) RGB. Labels: class 0 at (0.5, 0.5, 0.25, 0.25), class 1 at (0.2, 0.3, 0.05, 0.06).
"""
import random, sys, tempfile
from pathlib import Path

import cv2
import numpy as np
from ultralytics.cfg import get_cfg
from ultralytics.data.dataset import YOLODataset
from ultralytics.utils import DEFAULT_CFG

cv2.setNumThreads(1)
random.seed(0)
np.random.seed(0)
root = Path(tempfile.mkdtemp(prefix="augment"))
(root / "images").mkdir()
(root / "labels").mkdir()
for i in range(8):
    cv2.imwrite(str(root / "images" / f"{i}.png"), np.full((96, 128, 3), (60, 120, 200), np.uint8))
    (root / "labels" / f"{i}.txt").write_text("0 0.5 0.5 0.25 0.25\n1 0.2 0.3 0.05 0.06\n")


def statistics(name, **settings):
    hyp = get_cfg(DEFAULT_CFG, overrides=settings)
    data = {"names": {0: "large", 1: "small"}, "channels": 3, "nc": 2}
    dataset = YOLODataset(img_path=str(root / "images"), imgsz=128, batch_size=8, augment=True, hyp=hyp, rect=False, cache=False, stride=32,
                          pad=0.0, task="detect", data=data, prefix="")
    dataset.max_buffer_length = 10**6
    dataset.buffer = list(range(len(dataset)))
    rows = []
    for i in range(int(sys.argv[1])):
        sample = dataset[i % len(dataset)]
        image, boxes, classes = sample["img"].numpy() / 255.0, sample["bboxes"].numpy(), sample["cls"].numpy().reshape(-1)
        large, small = boxes[classes == 0], boxes[classes == 1]
        rows.append([len(large), len(small), large[:, 2].sum(), large[:, 3].sum(), large[:, 0].sum(), *image.mean((1, 2))])
    rows = np.array(rows)
    n_large = rows[:, 0].sum()
    print(name, "large boxes an image %.4f, small %.4f, mean w %.5f, mean h %.5f, mean cx %.5f, mean red %.5f green %.5f blue %.5f" % (
        rows[:, 0].mean(), rows[:, 1].mean(), rows[:, 2].sum() / n_large, rows[:, 3].sum() / n_large, rows[:, 4].sum() / n_large, *rows[:, 5:].mean(0)))


statistics("defaults")
statistics("mosaic closed", mosaic=0.0)
