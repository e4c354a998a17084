# verl's own switches stand for EAGLE with 3 steps, topk 1 and 4 tokens, unless others are written.
# expect: SD023 warning
python3 -m verl.trainer.main_ppo \
  actor_rollout_ref.model.path=XiaomiMiMo/MiMo-7B-RL \
  actor_rollout_ref.rollout.name=sglang \
  actor_rollout_ref.model.mtp.enable=True \
  actor_rollout_ref.model.mtp.enable_rollout=True \
  actor_rollout_ref.model.mtp.speculative_num_draft_tokens=24
