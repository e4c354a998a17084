# verl gives the engine 4 ranks, and the draft 2.
# expect: VL17 error
python3 -m verl.trainer.main_ppo \
  actor_rollout_ref.model.path=org/m \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.tensor_model_parallel_size=4 \
  +actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config='{method: eagle3, model: org/d, num_speculative_tokens: 3, draft_tensor_parallel_size: 2}'
