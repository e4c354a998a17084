//! An Indexed Job of Kubernetes.

use std::path::{Component, Path};

use super::{JobParts, place::KUBERNETES_COUNT, quote};

/// The manifest. Any JSON string is a valid YAML scalar.
pub fn manifest(parts: &JobParts, shards: usize) -> String {
    let title = parts.title(&format!("{shards} shards as an Indexed Job of Kubernetes"));
    let (name, device) = (&parts.name, parts.device_flag());
    let version = env!("CARGO_PKG_VERSION");
    let (sweep, out) = (value(&parts.sweep), value(&parts.out));
    let inputs: String = parts.inputs.iter().map(input).collect();
    let gpu = if parts.needs_gpu() {
        format!("          resources:\n            limits:\n              nvidia.com/gpu: {}\n", parts.gpus)
    } else {
        String::new()
    };
    let folder = |shard: &str| format!("{}-shard-{shard}-of-{shards}", parts.out);
    let folders: Vec<String> = (1..=shards).map(|shard| quote(&folder(&shard.to_string()))).collect();
    let merged = quote(&parts.out);
    format!(
        r#"{title}
# Fill in the image (with /bin/sh and spectune), the claim, and a selector for one kind of GPU: trials of different GPUs are
# not ranked together. The volume contains the folder of the sweep file and, under the same paths, every file that it names:
{inputs}# When the job is complete, in any pod with the volume, from /sweep:
#   spectune merge {folders} --out {merged}
# A pod that is evicted or fails continues where it stopped. backoffLimitPerIndex needs Kubernetes 1.29 or later.
apiVersion: batch/v1
kind: Job
metadata:
  name: "spectune-{name}"
spec:
  completionMode: Indexed
  completions: {shards}
  parallelism: {shards}
  backoffLimitPerIndex: 3
  template:
    spec:
      restartPolicy: Never
      # nodeSelector: {{ nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3 }}
      containers:
        - name: sweep
          image: "spectune:{version}" # fill in
          workingDir: /sweep
          env:
            # Kubernetes sets JOB_COMPLETION_INDEX for a pod, but not the number of completions.
            - name: {KUBERNETES_COUNT}
              value: "{shards}"
            - name: SWEEP
              value: {sweep}
            - name: OUT
              value: {out}
          # A sweep that is stopped keeps its trials and fails, so that it does not count as complete. $$ means $.
          command: ["/bin/sh", "-c"]
          args:
            - |
              shard=$$((JOB_COMPLETION_INDEX + 1))
              exec spectune sweep "$SWEEP" --device {device} --out "$OUT-shard-$shard-of-${KUBERNETES_COUNT}" --resume
{gpu}          volumeMounts:
            - name: sweep
              mountPath: /sweep
      volumes:
        - name: sweep
          persistentVolumeClaim:
            claimName: spectune # fill in; ReadWriteMany, unless all pods share a node
"#,
        folders = folders.join(" "),
    )
}

/// A YAML scalar for a container's environment variable, with `$(NAME)` escaped, which Kubernetes
/// would expand.
fn value(text: &str) -> String {
    // Kubernetes expands `$(NAME)` in values; a JSON string is also a valid YAML string.
    serde_json::Value::from(text.replace("$(", "$$(")).to_string()
}

/// A comment on a path that the sweep file names.
fn input((name, path): &(&'static str, String)) -> String {
    let below = Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let remark = if below { "" } else { " (not below the sweep file's folder: mount it too)" };
    format!("#   {name}: {}{remark}\n", serde_json::Value::from(path.as_str()))
}
