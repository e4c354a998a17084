//! The prompt of a conversation, without its oldest messages if it is too long
//! (`truncation: "auto"`).

use engine::text::{ChatOptions, Text};
use serde_json::Value;

use crate::{
    api::prompts::{self, ChatPrompt},
    http::error::ApiError,
    state::State,
};

/// Renders and tokenises a conversation that must leave room for `output` tokens, or for one. If
/// `truncates`, as few of the oldest messages as necessary are left out; messages of the system
/// before them stay.
///
/// # Errors
/// When it is too long, or the template rejects it.
pub async fn encode(
    state: &State,
    text: &Text,
    messages: Vec<Value>,
    options: ChatOptions,
    output: Option<usize>,
    truncates: bool,
) -> Result<ChatPrompt, ApiError> {
    let attempt = async |messages: Vec<Value>| {
        let prompt = prompts::encode_chat(state, text.clone(), messages, options.clone(), false, None, "input").await?;
        prompts::check_length(state, "input", prompt.tokens.len(), output)?;
        Ok(prompt)
    };
    if !truncates {
        return attempt(messages).await;
    }
    let starts = starts(&messages);
    // Every shorter conversation fits if a longer one does.
    let (mut low, mut high) = (0, starts.len());
    let mut found = Err(ApiError::invalid("the conversation is empty"));
    while low < high {
        // The whole conversation first: most fit.
        let middle = if low == 0 && high == starts.len() { 0 } else { low + (high - low) / 2 };
        match attempt(without(&messages, starts[middle])).await {
            // The first such error is that of the whole conversation, and is the one to report.
            Err(error) if error.is_too_long() => {
                low = middle + 1;
                if found.is_err() {
                    found = Err(error);
                }
            }
            Ok(prompt) => {
                high = middle;
                found = Ok(prompt);
            }
            Err(error) => return Err(error),
        }
    }
    found
}

/// Places at which a shortened conversation can start: after the messages of the system, and at
/// each later message of the user, since templates expect one there and results of tools need their
/// calls.
fn starts(messages: &[Value]) -> Vec<usize> {
    let system = messages.iter().take_while(|message| message["role"] == "system").count();
    let of_user = (system + 1..messages.len()).filter(|at| messages[*at]["role"] == "user");
    std::iter::once(system).chain(of_user).collect()
}

fn without(messages: &[Value], start: usize) -> Vec<Value> {
    let system = messages.iter().take_while(|message| message["role"] == "system").take(start);
    system.chain(&messages[start..]).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conversations_start_at_messages_of_the_user_after_those_of_the_system() {
        let roles = ["system", "user", "assistant", "tool", "user", "assistant", "user"];
        let messages: Vec<Value> =
            roles.iter().enumerate().map(|(at, role)| json!({"role": role, "content": at.to_string()})).collect();
        assert_eq!(starts(&messages), [1, 4, 6]);
        let left = without(&messages, 4);
        let contents: Vec<&str> = left.iter().filter_map(|message| message["content"].as_str()).collect();
        assert_eq!(contents, ["0", "4", "5", "6"]);
        assert_eq!(without(&messages, 1), messages);
        assert_eq!(starts(&messages[..1]), [1]);
    }
}
