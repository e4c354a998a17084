//! What the flags of a tree mean for a block head.

use launch::Launch;
use schemas::{
    flags::Key,
    tree::{Block, NodeSource, TreeShape},
};

use super::{no_sense, positive};
use crate::{checkpoint::Folder, error::EngineError, options::EngineOptions};

/// The block of the options' draft, if it is a block head by its algorithm or its configuration.
pub fn block(options: &EngineOptions) -> Result<Option<Block>, EngineError> {
    let named = options.algorithm.as_deref().map(str::to_ascii_uppercase);
    let is_named = matches!(named.as_deref(), Some("DFLASH" | "DSPARK"));
    if let (true, Some(_), Some(name)) = (is_named, &options.model_shape, &named)
        && let NodeSource::Block(block) = NodeSource::named(name)
    {
        // Random weights need no folder.
        let block = if block.sized_by_drafts { Block::DSPARK } else { Block::DFLASH };
        return Ok(Some(Block { given: options.draft_block_size.map(|size| block.rows_for(size)), ..block }));
    }
    let block = match options.draft_folder().as_deref().map(Folder::open) {
        Some(folder) if is_named => folder?.config.block(),
        // Without an algorithm, a folder that cannot be read is an error of the loader.
        Some(Ok(folder)) if options.algorithm.is_none() => folder.config.block(),
        _ => None,
    };
    match block {
        Some(block) => {
            let given = options.draft_block_size.map(|size| block.rows_for(size));
            Ok(Some(Block { given, ..block }))
        }
        // The loader says what the folder has in its place.
        None if is_named && options.draft_folder().is_none() => Err(EngineError::Configuration(
            "DFLASH and DSPARK draft with a block head: give its folder with --speculative-draft-model-path".into(),
        )),
        None => Ok(None),
    }
}

/// The shape that the flags mean for a block head. As in SGLang, N rows are verified and a chain of
/// them is the default; the steps follow from the others.
pub fn block_shape(
    block: Block,
    steps: Option<usize>,
    topk: Option<usize>,
    drafts: Option<usize>,
) -> Result<TreeShape, EngineError> {
    let deep = block.depth_of(block.given.unwrap_or(block.rows));
    let topk = topk.unwrap_or(1);
    // SGLang overwrites the number of steps of a chain with its own.
    let steps = steps.filter(|_| topk > 1);
    let drafts = drafts.unwrap_or(deep.saturating_add(1));
    let longest = drafts.saturating_sub(1);
    let steps = steps.unwrap_or(if topk == 1 { longest } else { longest.min(deep) });
    let shape = NodeSource::Block(block).shape(steps, topk, drafts);
    shape.map_err(|error| EngineError::Configuration(format!("tree shape: {error}")))
}

/// The size of a block that one of SGLang's two flags asks for.
pub fn block_size(launch: &Launch) -> Result<Option<usize>, EngineError> {
    let mut found = None;
    for key in [Key::SpeculativeDflashBlockSize, Key::SpeculativeDsparkBlockSize] {
        let Some(setting) = launch.setting(key) else { continue };
        let Some(size) = positive(launch, key, "number of rows")? else { continue };
        if found.is_some_and(|other| other != size) {
            return Err(no_sense(setting, "the same as --speculative-dflash-block-size, or only one of the two"));
        }
        found = Some(size);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_tree_follow_from_each_other_as_in_sglang() {
        let check = |block: Block, given: Option<usize>, [steps, topk, drafts]: [usize; 3], expected: &str| {
            let some = |number: usize| (number > 0).then_some(number);
            let block = Block { given, ..block };
            let found = block_shape(block, some(steps), some(topk), some(drafts)).map(|shape| shape.to_string());
            let found = found.unwrap_or_else(|error| error.to_string());
            assert!(found.starts_with(expected), "{block:?} {steps} {topk} {drafts}: {found}");
        };
        let dflash = Block { rows: 8, ..Block::DFLASH };
        check(dflash, None, [0, 0, 0], "7,1,8");
        check(dflash, None, [0, 0, 5], "4,1,5");
        check(dflash, None, [3, 1, 12], "11,1,12");
        check(dflash, None, [0, 4, 16], "7,4,16");
        check(dflash, None, [0, 4, 4], "3,4,4");
        check(dflash, None, [2, 4, 16], "2,4,16");
        check(dflash, None, [8, 4, 16], "tree shape: num_steps 8 is too deep");
        check(dflash, Some(5), [0, 0, 0], "4,1,5");
        check(dflash, Some(5), [0, 0, 3], "2,1,3");
        check(dflash, Some(5), [0, 0, 8], "tree shape: num_steps 7 is too deep");
        check(dflash, Some(5), [0, 2, 16], "4,2,16");
        check(Block::DSPARK, None, [0, 0, 0], "7,1,8");
        check(Block::DSPARK, None, [0, 8, 32], "7,8,32");
    }
}
