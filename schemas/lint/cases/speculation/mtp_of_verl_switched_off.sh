# Without enable_rollout the engine does not draft, whatever else is written.
# expect: nothing
python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=XiaomiMiMo/MiMo-7B-RL actor_rollout_ref.rollout.name=sglang \
  actor_rollout_ref.model.mtp.enable=True actor_rollout_ref.model.mtp.enable_rollout=False \
  actor_rollout_ref.model.mtp.speculative_algorithm=EAGLE actor_rollout_ref.model.mtp.speculative_num_steps=3 \
  actor_rollout_ref.model.mtp.speculative_eagle_topk=1 actor_rollout_ref.model.mtp.speculative_num_draft_tokens=24
