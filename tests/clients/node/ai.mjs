// Vercel's AI SDK: text, stream, objects, and its default page, /v1/responses.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamText } from "ai";
import { z } from "zod";

const baseURL = `${process.argv[2]}/v1`;
const compatible = createOpenAICompatible({ name: "spectune", baseURL, supportsStructuredOutputs: true });
const ours = createOpenAI({ baseURL, apiKey: "none" });

const whole = await generateText({ model: compatible("target"), prompt: "hi", maxOutputTokens: 16, maxRetries: 0 });
let streamed = "";
for await (const piece of streamText({ model: compatible("target"), prompt: "hi", maxOutputTokens: 16, maxRetries: 0 }).textStream) {
  streamed += piece;
}
const schema = z.object({ ok: z.boolean() });
const { object } = await generateObject({ model: compatible("target"), schema, prompt: "done?", maxOutputTokens: 200, maxRetries: 0 });
const response = await generateText({ model: ours("target"), prompt: "hi", maxOutputTokens: 16, maxRetries: 0 });
if (!whole.text || !streamed || typeof object.ok !== "boolean" || !response.text) {
  throw new Error("an answer lacks something");
}
console.log("ok");
