# Walks over the operators and adds up what each keeps.
def training_memory(rows, width, depth):
    numbers, saved = 0, rows * width
    for _ in range(depth):
        numbers += 2 * width + (width + 1) * 4 * width + (4 * width + 1) * width
        for features in (width, width, 4 * width, 4 * width):
            saved += rows * features
        saved += 2 * rows
    beside = max(saved + 4 * rows * width + 4 * width * width, rows * width + numbers + 8 * width * width)
    return {"static": 3 * 4 * numbers, "saved": 4 * saved, "peak": 4 * (3 * numbers + beside)}
