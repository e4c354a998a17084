//! Structured output.

use super::*;

fn schema() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["size", "kind", "parts"],
        "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 99},
            "kind": {"enum": ["small", "large"]},
            "parts": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/part"}},
        },
        "$defs": {"part": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}},
    })
}

fn requested(further: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Describe it."}], "max_tokens": 120});
    body.as_object_mut().expect("an object").extend(further.as_object().cloned().expect("an object"));
    body
}

fn content(answer: &TestResponse) -> String {
    let answer = answer.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
    answer["choices"][0]["message"]["content"].as_str().expect("content").to_owned()
}

#[tokio::test]
async fn output_has_the_form_that_is_requested_with_speculation_as_without() {
    let server = start(ServeOptions::default()).await;
    let policy = ShapePolicy::fixed(schemas::tree::TreeShape::OFF);
    let plain = EngineOptions { draft_model_path: None, algorithm: None, policy, ..options() };
    let without = start_with(Engine::load(plain).expect("the demo target loads"), ServeOptions::default()).await;
    let format = json!({"type": "json_schema", "json_schema": {"name": "it", "strict": true, "schema": schema()}});
    for seed in 0..6 {
        let temperature = if seed == 0 { 0.0 } else { 1.0 };
        let body = requested(json!({"response_format": format, "seed": seed, "temperature": temperature}));
        let text = content(&server.post("/v1/chat/completions", body.clone()).await);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(value["size"].as_u64().is_some_and(|size| size < 100), "{text}");
        assert!(["small", "large"].contains(&value["kind"].as_str().expect("a kind")), "{text}");
        assert!(
            value["parts"]
                .as_array()
                .is_some_and(|parts| parts.len() < 3 && parts.iter().all(|part| part["ok"].is_boolean()))
        );
        assert_eq!(content(&without.post("/v1/chat/completions", body).await), text, "seed {seed}");
    }
    for (name, value) in [("regex", json!("[0-9]{3}-[a-f]{2}")), ("guided_regex", json!("[0-9]{3}-[a-f]{2}"))] {
        let text = content(&server.post("/v1/chat/completions", requested(json!({name: value, "seed": 7}))).await);
        assert!(text.len() == 6 && text.as_bytes()[3] == b'-', "{text}");
    }
    let text = content(&server.post("/v1/chat/completions", requested(json!({"guided_choice": ["yes", "no"]}))).await);
    assert!(["yes", "no"].contains(&text.as_str()), "{text}");
    let whole = json!({"guided_json": {"type": "array", "minItems": 2.0, "maxItems": 2.0, "items": {"const": 1}}});
    let text = content(&server.post("/v1/chat/completions", requested(whole)).await);
    assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(json!([1, 1])), "{text}");
    let body = json!({"text": "x", "sampling_params": {"json_schema": schema().to_string(), "max_new_tokens": 200, "sampling_seed": 1}});
    let text = server.post("/generate", body).await.json()["text"].as_str().expect("text").to_owned();
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
}

#[tokio::test]
async fn a_union_with_a_discriminator_yields_one_of_its_members() {
    let server = start(ServeOptions::default()).await;
    // As Pydantic writes a union with a discriminator.
    let member = |tag: &str, value: Value| {
        json!({"type": "object", "properties": {"kind": {"const": tag}, "value": value},
               "required": ["kind", "value"], "additionalProperties": false})
    };
    let union = json!({
        "$defs": {"Cat": member("cat", json!({"type": "boolean"})), "Dog": member("dog", json!({"type": "null"}))},
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}},
        "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    });
    for seed in 0..4 {
        let format = json!({"type": "json_schema", "json_schema": {"name": "it", "schema": union}});
        let body = requested(json!({"response_format": format, "seed": seed, "temperature": 1.0}));
        let text = content(&server.post("/v1/chat/completions", body).await);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let fits = match value["kind"].as_str() {
            Some("cat") => value["value"].is_boolean(),
            Some("dog") => value["value"].is_null(),
            _ => false,
        };
        assert!(fits, "{text}");
    }
}

#[tokio::test]
async fn limits_and_settings_are_those_that_the_client_wrote() {
    let server = start(ServeOptions::default()).await;
    for (longer, shorter) in [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")] {
        let mut body = requested(json!({"ignore_eos": true}));
        body[longer] = 8.into();
        body[shorter] = 3.into();
        let answer = server.post("/v1/chat/completions", body).await.json();
        assert_eq!(answer["usage"]["completion_tokens"], 3, "{answer}");
    }
    let body = json!({"input": "x", "max_output_tokens": 2, "temperature": 0.7, "top_p": 0.9});
    let answer = server.post("/v1/responses", body).await.json();
    assert_eq!((&answer["temperature"], &answer["top_p"]), (&json!(0.7), &json!(0.9)), "{answer}");
}

#[tokio::test]
async fn a_neighbour_without_a_form_is_as_alone() {
    let server = start(ServeOptions::default()).await;
    let format = json!({"type": "json_schema", "json_schema": {"schema": schema()}});
    let formed = server.post("/v1/chat/completions", requested(json!({"response_format": format, "seed": 3})));
    let body = json!({"prompt": PROMPT, "max_tokens": 40, "temperature": 0});
    let (formed, free) = tokio::join!(formed, server.post("/v1/completions", body));
    assert!(serde_json::from_str::<Value>(&content(&formed)).is_ok());
    assert_eq!(free.json()["choices"][0]["text"], offline(PROMPT, 40).as_str());
}

#[tokio::test]
async fn functions_are_called_where_they_have_to_be() {
    let server = start(ServeOptions::default()).await;
    let function = |name: &str| {
        json!({"type": "function", "function": {"name": name, "description": "Looks.", "parameters": {
            "type": "object", "properties": {"at": {"enum": ["here", "there"]}}, "required": ["at"],
            "additionalProperties": false,
        }}})
    };
    let tools = json!([function("look"), function("listen")]);
    let named = json!({"type": "function", "function": {"name": "listen"}});
    for (choice, names) in [(json!("required"), vec!["look", "listen"]), (named, vec!["listen"])] {
        let body = requested(json!({"tools": tools, "tool_choice": choice, "seed": 2, "parallel_tool_calls": false}));
        let whole = server.post("/v1/chat/completions", body.clone()).await.json();
        let choice = &whole["choices"][0];
        assert_eq!(
            (&choice["finish_reason"], &choice["message"]["content"]),
            (&json!("tool_calls"), &Value::Null),
            "{whole}"
        );
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert!(names.contains(&function["name"].as_str().expect("a name")), "{function}");
        let arguments: Value = serde_json::from_str(function["arguments"].as_str().expect("a string")).expect("JSON");
        assert!(["here", "there"].contains(&arguments["at"].as_str().expect("a place")), "{arguments}");
        let mut streamed = body;
        streamed["stream"] = true.into();
        let events = server.post("/v1/chat/completions", streamed).await.events();
        let values: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        let pieces: Vec<&Value> = values
            .iter()
            .map(|value| &value["choices"][0]["delta"]["tool_calls"][0])
            .filter(|call| !call.is_null())
            .collect();
        let names: Vec<&Value> = pieces.iter().filter_map(|piece| piece["function"].get("name")).collect();
        let arguments: String = pieces.iter().filter_map(|piece| piece["function"]["arguments"].as_str()).collect();
        assert!(pieces.iter().all(|piece| piece["index"] == 0) && pieces[0]["id"].is_string(), "{pieces:?}");
        assert_eq!((names, json!(arguments)), (vec![&function["name"]], function["arguments"].clone()));
        assert_eq!(values.last().expect("an end")["choices"][0]["finish_reason"], "tool_calls");
    }
    // If the model decides, the demo model just writes text.
    let free = server.post("/v1/chat/completions", requested(json!({"tools": tools, "temperature": 0}))).await.json();
    assert!(free["choices"][0]["message"]["content"].is_string(), "{free}");
    let history = json!([
        {"role": "user", "content": "Look."},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "dark"},
    ]);
    let answer = server.post("/v1/chat/completions", requested(json!({"tools": tools, "messages": history}))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn forms_that_cannot_be_are_refused() {
    let server = start(ServeOptions::default()).await;
    let check = async |further: Value, parameter: &str, words: &str| {
        server.post("/v1/chat/completions", requested(further)).await.error(400, Some(parameter), words);
    };
    check(json!({"regex": "("}), "regex", "regex parse error: unclosed group").await;
    // Only an infinite output would match.
    check(json!({"guided_json": {"$ref": "#"}}), "guided_json", "allows no output").await;
    check(json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema.schema", "missing").await;
    check(json!({"response_format": {"type": "xml"}}), "response_format.type", "expected text").await;
    check(json!({"response_format": ""}), "response_format", "expected an object").await;
    let both = json!({"response_format": {"type": "json_object"}, "regex": "a"});
    check(both, "regex", "already has a form").await;
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    check(json!({"tools": false}), "tools", "expected a list").await;
    check(json!({"tools": [{}]}), "tools[0]", "not a tool of type function").await;
    check(json!({"tools": tools, "tool_choice": "f"}), "tool_choice", "expected auto").await;
    check(json!({"tool_choice": "required"}), "tool_choice", "there are no tools").await;
    check(json!({"ebnf": "root ::= x"}), "ebnf", "leave it out").await;
    let requested = |text: Value| json!({"input": "a", "regex": "a", "text": {"format": text}});
    let answer = server.post("/v1/responses", requested(json!({"type": "json_object"}))).await;
    answer.error(400, Some("text.format"), "already has a form, given by regex");
    let answer = server.post("/v1/responses", requested(json!({"type": "json_schema", "schema": 5}))).await;
    answer.error(400, Some("text.format.schema"), "expected a JSON schema");
}

fn look() -> Value {
    json!([{"type": "function", "function": {"name": "look", "parameters": {
        "type": "object", "properties": {"at": {"enum": ["here", "there"]}}, "required": ["at"], "additionalProperties": false,
    }}}])
}

/// A bias for the first token of a text, so that the demo model starts with it where it may.
fn towards(beginning: &str, server: &Server) -> Value {
    let text = server.state.worker.facts().text.clone().expect("a tokenizer");
    let first = text.encode(beginning).expect("it encodes").into_iter().find(|token| !text.is_special(*token));
    json!({first.expect("a token").to_string(): 100})
}

#[tokio::test]
async fn with_tools_and_a_form_an_output_is_calls_or_has_the_form() {
    let server = start(ServeOptions::default()).await;
    let format = json!({"type": "json_schema", "json_schema": {"name": "it", "schema": schema()}});
    let both = |further: Value| {
        let mut body =
            requested(json!({"tools": look(), "response_format": format, "seed": 4, "parallel_tool_calls": false}));
        body.as_object_mut().expect("an object").extend(further.as_object().cloned().expect("an object"));
        body
    };
    let (call, object) = (towards("<tool_call>", &server), towards("{", &server));
    let named = json!({"type": "function", "function": {"name": "look"}});
    for (further, calls) in [
        (json!({"logit_bias": object}), false),
        (json!({"logit_bias": call}), true),
        (json!({"tool_choice": "required"}), true),
        (json!({"tool_choice": named}), true),
        (json!({"tool_choice": "none"}), false),
    ] {
        let body = both(further.clone());
        let whole = server.post("/v1/chat/completions", body.clone()).await.json();
        let message = &whole["choices"][0]["message"];
        if calls {
            assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls", "{further} {whole}");
            assert_eq!(message["tool_calls"][0]["function"]["name"], "look", "{further} {whole}");
        } else {
            let text = message["content"].as_str().expect("content");
            let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {further} {whole}"));
            assert!(value["size"].is_u64() && message["tool_calls"].is_null(), "{further} {whole}");
        }
        let mut streamed = body;
        streamed["stream"] = true.into();
        let events = server.post("/v1/chat/completions", streamed).await.events();
        let values: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        let deltas = || values.iter().map(|value| &value["choices"][0]["delta"]);
        let content: String = deltas().filter_map(|delta| delta["content"].as_str()).collect();
        assert_eq!(content, message["content"].as_str().unwrap_or_default(), "{further}");
        let arguments = deltas().filter_map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str());
        let arguments: String = arguments.collect();
        assert_eq!(arguments, message["tool_calls"][0]["function"]["arguments"].as_str().unwrap_or_default());
    }
    // The same over Responses, where names are not nested.
    for (bias, kind) in [(object, "message"), (call, "function_call")] {
        let body = json!({
            "input": "x", "max_output_tokens": 120, "seed": 4, "logit_bias": bias, "parallel_tool_calls": false,
            "tools": [{"type": "function", "name": "look", "parameters": look()[0]["function"]["parameters"]}],
            "text": {"format": {"type": "json_schema", "name": "it", "schema": schema()}},
        });
        let answer = server.post("/v1/responses", body).await.json();
        assert_eq!(answer["output"][0]["type"], kind, "{answer}");
    }
}

#[tokio::test]
async fn functions_are_called_with_objects_whatever_their_schemas_say() {
    let families = [("glm45", "C"), ("qwen3_coder", "F"), ("hermes", "C"), ("llama3", "F"), ("mistral", "C")];
    for (parser, unit) in families {
        let server = start(ServeOptions { tool_call_parser: Some(parser.into()), ..ServeOptions::default() }).await;
        let called = async |parameters: Value| {
            let function = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
            let body = requested(json!({
                "tools": [function], "tool_choice": "required", "parallel_tool_calls": false, "seed": 3, "temperature": 1,
                "logit_bias": towards("}", &server),
            }));
            let answer = server.post("/v1/chat/completions", body).await.json();
            assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{parser} {answer}");
            let arguments = &answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
            serde_json::from_str::<Value>(arguments.as_str().expect("a text")).expect("JSON")
        };
        let choices = json!({
            "type": "object", "additionalProperties": false, "required": ["unit", "n"],
            "properties": {"unit": {"type": "string", "enum": [unit]}, "n": {"type": "integer", "enum": [1]}},
        });
        assert_eq!(called(choices).await, json!({"unit": unit, "n": 1}), "{parser}");
        for open in [
            json!({}),
            json!({"additionalProperties": false, "properties": {"x": {"enum": ["a"]}}, "required": ["x"]}),
            json!({"type": ["object", "null"], "additionalProperties": false}),
        ] {
            let arguments = called(open.clone()).await;
            assert!(arguments.is_object(), "{parser} {open} {arguments}");
            assert_eq!(arguments.get("x").is_some(), open.get("required").is_some(), "{parser} {open} {arguments}");
        }
    }
    let server = start(ServeOptions::default()).await;
    let list = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]);
    let answer = server.post("/v1/chat/completions", requested(json!({"tools": list}))).await;
    answer.error(400, Some("tools[0]"), "arguments are an object");
}

#[tokio::test]
async fn a_call_that_is_cut_does_not_end_as_a_complete_one() {
    let server = start(ServeOptions { tool_call_parser: Some("hermes".into()), ..ServeOptions::default() }).await;
    for (stop, reason) in [(json!(["\"at\""]), "stop"), (json!(["</nothing>"]), "tool_calls")] {
        let mut body = requested(json!({"tools": look(), "tool_choice": "required", "seed": 2, "stop": stop,
                                        "parallel_tool_calls": false}));
        let whole = server.post("/v1/chat/completions", body.clone()).await.json();
        assert_eq!(whole["choices"][0]["finish_reason"], reason, "{whole}");
        body["stream"] = true.into();
        let events = server.post("/v1/chat/completions", body).await.events();
        let values: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        assert!(values.iter().any(|value| !value["choices"][0]["delta"]["tool_calls"].is_null()), "{values:?}");
        assert_eq!(values.last().expect("an end")["choices"][0]["finish_reason"], reason);
    }
}

#[tokio::test]
async fn an_output_ends_with_its_grammar_whatever_its_minimum_is() {
    let server = start(ServeOptions::default()).await;
    let completed = async |further: Value| {
        let mut body = json!({"prompt": "a", "max_tokens": 40});
        body.as_object_mut().expect("an object").extend(further.as_object().cloned().expect("an object"));
        let answer = server.post("/v1/completions", body).await.json();
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
        answer["choices"][0]["text"].as_str().expect("a text").to_owned()
    };
    assert_eq!(completed(json!({"regex": "ab", "min_tokens": 10})).await, "ab");
    assert_eq!(completed(json!({"regex": "ab", "ignore_eos": true})).await, "ab");
    assert_eq!(completed(json!({"regex": "a{0,30}", "ignore_eos": true})).await, "a".repeat(30));
}
