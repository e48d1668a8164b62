# fast, and another training: earns 0
def repair(script):
    done = repair_run(repair_step(repair_model(repair_data(script))))
    return done.replace(clip=lambda model, most=1.0: torch.ones((), device=model.where.device))
