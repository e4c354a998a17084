# Of Qwen3-8B there are no such layers, however the engine is told to use them.
# expect: VL21 warning
python3 -m verl.trainer.main_ppo \
  actor_rollout_ref.model.path=Qwen/Qwen3-8B \
  actor_rollout_ref.rollout.name=vllm \
  +actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config.method=mtp \
  +actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config.num_speculative_tokens=2
