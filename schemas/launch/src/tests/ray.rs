//! Deployments of Ray Serve.

use schemas::{flags::Key, text::Source};

use super::super::{Options, parse};

/// The target of the only launch of a text, and what is written there.
fn target(name: &str, text: String) -> Option<(String, String)> {
    let source = Source::new(name, text);
    let launches = parse(&source, &Options::default()).launches;
    assert_eq!(launches.len(), 1, "{}", source.text());
    let model = launches[0].text(Key::ModelPath)?;
    Some((model.value.to_owned(), source.slice(model.span).trim_matches('"').to_owned()))
}

fn both(name: &str) -> Option<(String, String)> {
    Some((name.to_owned(), name.to_owned()))
}

#[test]
fn a_deployment_in_yaml_loads_its_target() {
    let target = |loading: &str| {
        let speculation = "speculative_config: {method: eagle3, model: d, num_speculative_tokens: 3}";
        let text = format!(
            "applications:\n- args:\n    llm_configs:\n    - model_loading_config: {loading}\n      engine_kwargs:\n        \
             {speculation}\n"
        );
        target("serve.yaml", text)
    };
    assert_eq!(target("{model_id: m, model_source: org/m}"), both("org/m"));
    assert_eq!(target("{model_id: org/n}"), both("org/n"));
    assert_eq!(target("{model_id: org/n, model_source: null}"), both("org/n"));
    assert_eq!(target("{model_id: m, model_source: {bucket_uri: s3://b}}"), None);
}

#[test]
fn a_deployment_in_python_loads_its_target() {
    let target = |loading: &str| {
        let speculation = "{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 3}";
        let text = format!(
            "from ray.serve.llm import LLMConfig, ModelLoadingConfig\nconfig = LLMConfig(\n    \
             model_loading_config={loading},\n    engine_kwargs={{\"speculative_config\": {speculation}}},\n)\n"
        );
        target("serve.py", text)
    };
    assert_eq!(target("{\"model_id\": \"m\", \"model_source\": \"org/m\"}"), both("org/m"));
    assert_eq!(target("dict(model_id=\"org/n\")"), both("org/n"));
    assert_eq!(target("ModelLoadingConfig(model_id=\"m\", model_source=\"org/m\")"), both("org/m"));
    assert_eq!(target("dict(model_id=\"org/n\", model_source=None)"), both("org/n"));
    assert_eq!(target("dict(model_id=\"m\", model_source={\"bucket_uri\": \"s3://b\"})"), None);
    assert_eq!(target("loading"), None);
}
