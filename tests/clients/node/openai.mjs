// openai for Node: chat, stream, tools, responses.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "Is it done?" }];
const parameters = { type: "object", properties: { at: { enum: ["here"] } }, required: ["at"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "look", parameters } }];

const chat = await client.chat.completions.create({ model: "target", messages, max_tokens: 16 });
let text = "";
for await (const chunk of await client.chat.completions.create({ model: "target", messages, max_tokens: 16, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
const called = await client.chat.completions.create({ model: "target", messages, tools, tool_choice: "required", max_tokens: 100 });
const response = await client.responses.create({ model: "target", input: "hi", max_output_tokens: 16 });
if (!chat.choices.length || !text || JSON.parse(called.choices[0].message.tool_calls[0].function.arguments).at !== "here"
    || !response.output_text) {
  throw new Error("an answer lacks something");
}
console.log("ok");
