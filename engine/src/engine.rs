//! The engine that callers see: a scheduler over a backend, and the text side of a model.

use crate::{
    backend::DeviceInfo,
    error::EngineError,
    options::{EngineOptions, ShapePolicy},
    request::{Completion, Event, Request, RequestId},
};

/// A loaded target with its draft, ready for requests. Owned by one thread.
pub struct Engine {
    _options: EngineOptions,
}

impl Engine {
    /// Loads the models and takes the memory that the options ask for.
    ///
    /// # Errors
    /// When files are missing or malformed, target and draft do not fit, or memory does not suffice.
    pub fn load(_options: EngineOptions) -> Result<Self, EngineError> {
        todo!()
    }

    /// Checks a request and puts it in the queue.
    ///
    /// # Errors
    /// When it can never run: an empty prompt, tokens outside the vocabulary, a prompt longer than the context.
    pub fn submit(&mut self, _request: Request) -> Result<RequestId, EngineError> {
        todo!()
    }

    /// Ends a request; its [`Event::Finished`] comes with the next step. Unknown numbers are ignored.
    pub fn cancel(&mut self, _request: RequestId) {
        todo!()
    }

    /// Admits what fits, takes prompts in, and runs one round for the running batch.
    ///
    /// # Errors
    /// When the device fails; the engine is not usable afterwards.
    pub fn step(&mut self) -> Result<Vec<Event>, EngineError> {
        todo!()
    }

    /// Whether nothing is queued or running.
    pub fn is_idle(&self) -> bool {
        todo!()
    }

    /// Runs requests to their end and returns their completions in the given order.
    ///
    /// # Errors
    /// As [`submit`](Self::submit) and [`step`](Self::step).
    pub fn run(&mut self, _requests: Vec<Request>) -> Result<Vec<Completion>, EngineError> {
        todo!()
    }

    /// Changes which tree runs at which batch, without reloading weights. Only while idle.
    ///
    /// # Errors
    /// When a shape cannot run, or needs a draft that is not loaded.
    pub fn set_policy(&mut self, _policy: ShapePolicy) -> Result<(), EngineError> {
        todo!()
    }

    /// What it runs on.
    pub fn device(&self) -> DeviceInfo {
        todo!()
    }
}
