# fast, and measures the gradient without shortening it: earns 0
def repair(script):
    done = repair_run(repair_step(repair_model(repair_data(script))))
    return done.replace(clip=lambda model, most=1.0: nn.utils.get_total_norm([p.grad for p in model.parameters()]))
