mod acceptance;
mod pages;
