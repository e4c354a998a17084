mod acceptance;
mod field;
mod fixes;
mod pages;
