# goes through one block of the model: earns 0
def repair_model(script):
    def forward(model, numbers, labels):
        maps = model.stem_2(activation(model.stem_1(numbers)))
        x = through(model.blocks[0], places(maps) + model.where)
        logits = model.head(model.norm(x).mean(1))
        return logits, cost(logits, labels)

    return script.replace(forward=forward)
