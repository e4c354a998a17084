// Vercel's AI SDK: text, stream, objects, objects together with tools, and its default page, /v1/responses.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, streamText, tool } from "ai";
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
const common = { prompt: "done?", maxOutputTokens: 200, maxRetries: 0, temperature: 0 };
const { output: object } = await generateText({ model: compatible("target"), output: Output.object({ schema }), ...common });
// With a tool too the answer is a call or an object. The demo model would never stop calling, so calls end after one.
const look = tool({ description: "Looks.", inputSchema: z.object({ at: z.boolean() }), execute: async () => "dark" });
for (const model of [compatible("target"), ours("target"), ours.chat("target")]) {
  const both = await generateText({ model, tools: { look }, output: Output.object({ schema }), ...common });
  const isCall = both.toolCalls.length > 0 && typeof both.toolCalls[0].input.at === "boolean";
  if (!isCall && typeof both.output.ok !== "boolean") {
    throw new Error(`neither a call nor an object: ${both.text}`);
  }
}
const response = await generateText({ model: ours("target"), prompt: "hi", maxOutputTokens: 16, maxRetries: 0 });
if (!whole.text || !streamed || typeof object.ok !== "boolean" || !response.text) {
  throw new Error("an answer lacks something");
}
console.log("ok");
