# expect: VL12 error
python3 -m verl.trainer.main_ppo \
  actor_rollout_ref.model.path=XiaomiMiMo/MiMo-7B-RL \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.model.mtp.enable=True \
  actor_rollout_ref.model.mtp.enable_rollout=True \
  actor_rollout_ref.model.mtp.num_speculative_tokens=0
