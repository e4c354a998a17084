# expect: VL12 error
# expect: VL15 error
python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm actor_rollout_ref.model.path=Qwen/Qwen3-8B \
  +actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config='{method: eagle3, num_speculative_tokens: 0}'
