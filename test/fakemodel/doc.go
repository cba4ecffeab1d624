// Package fakemodel has servers that speak the streaming APIs of language
// models: Anthropic's Messages, OpenAI's Responses and Chat Completions, and
// Gemini's. There is no model behind them, but a script: what it reads, edits
// and runs by the tools that a client offers, and what it says. They want a
// credential, keep what they received, and can hold a turn until they are told
// to go on. Package internet gives them the names that clients know.
//
// It is for tests and trials. A request that is none of these APIs' is refused
// as they refuse it; nothing is known of models beyond what programs ask for.
package fakemodel
