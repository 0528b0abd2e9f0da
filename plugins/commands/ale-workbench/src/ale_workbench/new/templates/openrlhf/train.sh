#!/bin/bash
# Train MODEL, a folder or a name on the hub, by GRPO with OpenRLHF, on one machine with GPUS GPUs.
set -e
cd "$(dirname "$0")"
python3 prompts.py
python3 -m openrlhf.cli.train_ppo_ray \
  --actor.model_name_or_path "${MODEL:?the model to train}" \
  --actor.num_nodes 1 \
  --actor.num_gpus_per_node "${GPUS:-1}" \
  --actor.adam.lr 1e-6 \
  --vllm.num_engines "${GPUS:-1}" \
  --vllm.tensor_parallel_size 1 \
  --vllm.gpu_memory_utilization 0.5 \
  --vllm.enable_sleep \
  --ds.enable_sleep \
  --ds.zero_stage 3 \
  --train.colocate_all \
  --train.agent_func_path "$PWD/agent.py" \
  --train.batch_size 64 \
  --data.prompt_dataset "$PWD/prompts.jsonl" \
  --data.input_key input \
  --data.label_key label \
  --data.apply_chat_template \
  --data.max_len 8192 \
  --rollout.max_new_tokens 1024 \
  --rollout.batch_size 8 \
  --rollout.n_samples_per_prompt 8 \
  --algo.advantage.estimator group_norm \
  --algo.kl.init_coef 0 \
  --ckpt.output_dir "$PWD/checkpoint" \
  "$@"
